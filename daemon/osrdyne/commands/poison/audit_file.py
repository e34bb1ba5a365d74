"""The audit file: one line of JSON for each poison entry that a person removed, written before the entry goes.

Commands only append to it. One that is killed between the line and the removal leaves a line too many, never one too
few.
"""

from __future__ import annotations

import getpass
import json
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from osrdyne.commands.poison.entry import Entry
from osrdyne.errors import DaemonError

#: Adds one line: what was done, in which pool, to which entry. Raises DaemonError.
Write = Callable[[str, str, Entry], None]


class CannotAudit(DaemonError):
    """The audit file cannot be written."""


@contextmanager
def opened(path: Path) -> Iterator[Write]:
    """Open the file for appending; create it, readable by its owner only, if needed. Raises CannotAudit."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    except OSError as error:
        raise CannotAudit(
            f"the audit file {path} cannot be written ({error.strerror}); name another one with --audit"
        ) from None

    def write(action: str, pool: str, entry: Entry) -> None:
        line = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "who": who(),
            "action": action,
            "pool": pool,
            "id": entry.id,
            "key": entry.key,
            "reason": entry.reason,
            "request_id": entry.correlation_id,
        }
        try:
            os.write(descriptor, json.dumps(line).encode() + b"\n")
            os.fsync(descriptor)
        except OSError as error:
            raise CannotAudit(f"the audit file {path} cannot be written: {error.strerror}") from None

    try:
        yield write
    finally:
        os.close(descriptor)


def who() -> str:
    """Return the name of the person at this machine, also behind `sudo`."""
    try:
        account = getpass.getuser()
    except (KeyError, OSError):  # an account without a name
        account = str(os.getuid())
    person = os.environ.get("SUDO_USER")
    return f"{person} as {account}@{socket.gethostname()}" if person else f"{account}@{socket.gethostname()}"
