"""The template of a group: the template unit and its drop-ins, as systemd finds them, and a hash of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from osrdyne_protocol import keys

#: Which systemd: the machine's, or that of the daemon's own user.
ManagerKind = Literal["system", "user"]

#: What follows an instance's name in a unit's name.
SERVICE = ".service"


@dataclass(frozen=True, slots=True)
class UnitPlace:
    """The place of a pool's units, and of the files that they read."""

    #: Name of the template unit, such as `osrdyne-core@.service`.
    unit: str
    #: Directory that the template's `EnvironmentFile=` names, with `%i.env` in it.
    environment_directory: Path
    manager: ManagerKind = "system"
    #: D-Bus address of the bus that the manager is on; None for the usual one.
    bus_address: str | None = None
    #: The command that shows the journal, without options.
    journalctl: tuple[str, ...] = ("journalctl",)

    def unit_of(self, name: str) -> str:
        """Return the name of one instance of the template unit."""
        return f"{self.unit.removesuffix(SERVICE)}{name}{SERVICE}"


def template_hash(paths: Iterable[str], consumer_timeout_ms: int) -> str:
    """Return a short hash of the files that a unit is made of and of the consumer timeout that its worker gets.

    Of a file that we may not read, path and time of modification count.
    """
    parts = [str(consumer_timeout_ms)]
    for path in paths:
        try:
            parts += [path, Path(path).read_bytes().hex()]
        except OSError:
            parts += [path, _modified(path)]
    return keys.digest(*parts)[:16]


def _modified(path: str) -> str:
    try:
        return str(Path(path).stat().st_mtime_ns)
    except OSError:
        return ""
