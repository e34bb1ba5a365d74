"""Finds the pool's broker users: as options name them, else in the files that `make up` writes.

Reads `/etc/osrdyne/{pool}/client.uri` and `monitor.uri`; what they hold is a credential and is never shown.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

#: Where playbooks/dev.yml keeps the addresses of a pool, one folder a pool.
CONFIGURATION = Path("/etc/osrdyne")


class NoAccess(Exception):
    """Nothing says how to reach the pool's broker."""


@dataclass(frozen=True, slots=True)
class Access:
    """Broker addresses with passwords, which are left out of `repr`."""

    #: Of a user that may call the pool.
    client: str = field(repr=False)
    #: Of a user that may read the pool's events; None where there is none.
    monitor: str | None = field(repr=False)


def find(pool: str, broker: str | None, events: str | None, configuration: Path = CONFIGURATION) -> Access:
    """Return the addresses: those given (each an address, or a file that holds one), else those of `make up`.

    With one given and none for events, events are not looked for: what `make up` wrote may be of another broker.
    Raises `NoAccess`.
    """
    if broker is not None:
        return Access(_given(broker), events and _given(events))
    folder = configuration / pool
    client = _read(folder / "client.uri")
    if client is None:
        raise NoAccess(f"no {folder / 'client.uri'} and no --broker: this machine has no pool {pool}; run: make up")
    return Access(client, _given(events) if events else _read(folder / "monitor.uri"))


def _given(address: str) -> str:
    found = address if "://" in address else _read(Path(address))
    if found is None:
        raise NoAccess(
            f"{address} is neither an address (amqp://user:password@host:port/vhost) nor a file that holds one"
        )
    return found


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8-sig").strip() or None
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise NoAccess(f"{path} cannot be read ({error.strerror}); be the user who ran make up, or root") from error
