"""One call to a key that has no worker yet, with the library that the daemon's installation brings along."""

from __future__ import annotations

import sys
from pathlib import Path

from osrdyne_client import Client


def main() -> None:
    """Prints the status of the answer."""
    uri = Path(sys.argv[1]).read_text(encoding="utf-8").strip()
    with Client(uri, "airports", timeout=30.0) as client:
        reply = client.call("first", b"hello")
        sys.stdout.write(f"{reply.status} {reply.body!r}\n")


if __name__ == "__main__":
    main()
