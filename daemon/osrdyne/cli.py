"""`python -m osrdyne.cli` is the `osrdyne` command: service units start the daemon with an interpreter of their own."""

from __future__ import annotations

from osrdyne.commands.app import main

__all__ = ["main"]

if __name__ == "__main__":
    main()
