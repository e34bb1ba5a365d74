"""Fails when the command line of any process holds one of the passwords kept in a directory."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path


def main() -> None:
    """Says which process shows which password's file, never the password."""
    passwords = {path.name: path.read_bytes().strip() for path in Path(sys.argv[1]).glob("*.password")}
    if not passwords:
        sys.exit("there are no passwords to look for")
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        shown = b""
        with contextlib.suppress(OSError):  # it has ended meanwhile
            shown = process.read_bytes()
        for name, password in passwords.items():
            if password in shown:
                sys.exit(f"{process} shows the password of {name}")


if __name__ == "__main__":
    main()
