"""`python -m osrdyne.cli` is the program `osrdyne`: service units start the daemon with an interpreter of their own."""

from __future__ import annotations

from osrdyne_command.program import main

if __name__ == "__main__":
    main()
