"""`docker compose`, compiled from its Go module: Debian's package speaks an earlier language."""
