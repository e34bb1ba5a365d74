"""The verbs of systemd's manager that the driver uses, for the instances of one template unit.

Names and types are those of org.freedesktop.systemd1(5).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from osrdyne.drivers.systemd.bus import BusError, DBusConnection, Listener, MethodCall, Signal, default_address
from osrdyne.drivers.systemd.snapshot import JOB_FAILURES
from osrdyne.drivers.systemd.template import SERVICE, UnitPlace

_PEER = "org.freedesktop.systemd1"
_PATH = "/org/freedesktop/systemd1"
_MANAGER = f"{_PEER}.Manager"
_UNIT = f"{_PEER}.Unit"
_SERVICE = f"{_PEER}.Service"
_PROPERTIES = "org.freedesktop.DBus.Properties"

#: What systemd says for an endless time.
_INFINITY = 2**64 - 1

#: A later job of a unit takes the place of one that waits.
_MODE = "replace"

#: Instance that no group has, to learn what systemd makes of the template unit.
_PROBE = "template"

_RULES = (
    f"type='signal',sender='{_PEER}',interface='{_PROPERTIES}',member='PropertiesChanged',path_namespace='{_PATH}/unit'",
    f"type='signal',sender='{_PEER}',interface='{_MANAGER}',path='{_PATH}'",
    f"type='signal',sender='org.freedesktop.DBus',member='NameOwnerChanged',arg0='{_PEER}'",
)

_ERROR = "org.freedesktop.DBus.Error"
_NO_PERMISSION = (f"{_ERROR}.AccessDenied", f"{_ERROR}.InteractiveAuthorizationRequired")
_NOBODY = (f"{_ERROR}.ServiceUnknown", f"{_ERROR}.NameHasNoOwner", f"{_ERROR}.NoReply", f"{_ERROR}.Spawn.ChildExited")


@dataclass(frozen=True, slots=True)
class Unit:
    """One instance as systemd has it loaded."""

    properties: Mapping[str, Any]
    #: Its unit file and drop-ins; empty when it has none.
    files: tuple[str, ...]
    #: Why it cannot be started, None when it can.
    problem: str | None
    #: Its files have changed since systemd read them (daemon-reload): it runs, and would be started, as they were.
    is_outdated: bool


@dataclass(frozen=True, slots=True)
class ListedUnit:
    """One instance in a listing. `job` is the type of its job, empty for none."""

    active: str
    sub: str
    job: str


@dataclass(frozen=True, slots=True)
class SignalCallbacks:
    """Callbacks for systemd's signals. Names are those of instances."""

    #: A unit is now as this snapshot says.
    on_unit: Callable[[str, Mapping[str, Any]], None]
    #: A job ended in a way that leaves the unit as it was.
    on_job_failed: Callable[[str, str], None]
    #: systemd has forgotten a unit.
    on_removed: Callable[[str], None]
    #: systemd has read unit files again.
    on_reloaded: Callable[[], None]
    #: Signals may have been missed.
    on_lost: Callable[[str], None]


class Manager:
    """One systemd, system or user. Every method raises `DriverError` with a reason and a remedy."""

    def __init__(self, place: UnitPlace, ears: SignalCallbacks) -> None:
        self._place = place
        self._ears = ears
        self._head = f"{_PATH}/unit/{_escaped(place.unit.removesuffix(SERVICE))}"
        #: Properties of the service half of a change, until those of the unit follow.
        self._half: dict[str, Mapping[str, Any]] = {}
        self._reloading = False
        listener = Listener(_RULES, self._subscribe, self._heard, ears.on_lost)
        self._bus = DBusConnection(place.bus_address or default_address(place.manager), _PEER, listener)

    async def connect(self) -> None:
        """Return once systemd's signals are listened to."""
        await self._bus.connect()

    async def close(self) -> None:
        """End the connection."""
        await self._bus.close()

    async def unit(self, name: str) -> Unit:
        """Return one instance, loaded if need be."""
        path = self._path(name)
        [unit] = await self._call(_PROPERTIES, "GetAll", "s", _UNIT, path=path)
        [files] = await self._call(_PROPERTIES, "Get", "ss", _SERVICE, "EnvironmentFiles", path=path)
        return Unit(
            unit,
            tuple(filter(None, (unit["FragmentPath"], *unit["DropInPaths"]))),
            self._problem(name, unit, [file for file, _ in files]),
            unit["NeedDaemonReload"],
        )

    async def properties(self, name: str) -> Mapping[str, Any]:
        """Return all properties of one instance, including the result of its last run."""
        path = self._path(name)
        [unit] = await self._call(_PROPERTIES, "GetAll", "s", _UNIT, path=path)
        [service] = await self._call(_PROPERTIES, "GetAll", "s", _SERVICE, path=path)
        return {**service, **unit}

    async def template(self) -> Unit:
        """Return what systemd makes of the template unit now."""
        return await self.unit(_PROBE)

    async def stop_timeout(self) -> float:
        """Return how long a worker may take to end before systemd kills it, in seconds."""
        [found] = await self._call(_PROPERTIES, "Get", "ss", _SERVICE, "TimeoutStopUSec", path=self._path(_PROBE))
        return math.inf if found == _INFINITY else found / 1e6

    async def listed(self) -> dict[str, ListedUnit]:
        """Return the loaded instances of the template unit, by name."""
        pattern = self._place.unit_of("*")
        [rows] = await self._call(_MANAGER, "ListUnitsByPatterns", "asas", [], [pattern])
        start, end = pattern.split("*")
        # name, description, load state, active, sub, followed, path, job number, job type, job path
        return {row[0].removeprefix(start).removesuffix(end): ListedUnit(row[3], row[4], row[8]) for row in rows}

    async def start(self, name: str) -> None:
        await self._call(_MANAGER, "StartUnit", "ss", self._place.unit_of(name), _MODE)

    async def stop(self, name: str) -> None:
        """Ask for a stop; a unit that systemd does not know is stopped."""
        await self._unless_unknown("StopUnit", "ss", self._place.unit_of(name), _MODE)

    async def reset_failed(self, name: str) -> None:
        """Let systemd forget that a unit failed, and how often it was started."""
        await self._unless_unknown("ResetFailedUnit", "s", self._place.unit_of(name))

    async def _unless_unknown(self, member: str, signature: str, *arguments: Any) -> None:
        try:
            await self._call(_MANAGER, member, signature, *arguments)
        except BusError as error:
            if error.name != f"{_PEER}.NoSuchUnit":
                raise

    async def _call(self, interface: str, member: str, signature: str, *arguments: Any, path: str = _PATH) -> list[Any]:
        try:
            return await self._bus.call(MethodCall(path, interface, member, signature, arguments))
        except BusError as error:
            explained = BusError(self._explained(error, member), error.name)
            explained.away |= error.name in _NOBODY
            raise explained from error

    async def _subscribe(self) -> None:
        self._half.clear()
        self._reloading = False
        await self._call(_MANAGER, "Subscribe", "")

    def _heard(self, heard: Signal) -> None:
        if heard.member == "NameOwnerChanged":
            # It knows its listeners again, but sent no signals meanwhile.
            self._ears.on_lost("systemd left the bus" if not heard.body[2] else "systemd has restarted")
        elif heard.interface == _PROPERTIES:
            self._changed(heard.path, *heard.body[:2])
        elif heard.member == "JobRemoved" and heard.body[3] in JOB_FAILURES:
            self._tell(self._ears.on_job_failed, heard.body[2], heard.body[3])
        elif heard.member == "UnitRemoved" and not self._reloading:
            self._half.pop(heard.body[1], None)
            self._tell(self._ears.on_removed, heard.body[0])
        elif heard.member == "Reloading":
            # Meanwhile systemd forgets every unit, and knows it again at the end.
            self._reloading = bool(heard.body[0])
            if not self._reloading:
                self._ears.on_reloaded()

    def _changed(self, path: str, interface: str, properties: Mapping[str, Any]) -> None:
        if not path.startswith(self._head):
            return
        # systemd sends the service's properties first and the unit's next: both together are one moment.
        if interface == _SERVICE:
            self._half[path] = properties
        elif interface == _UNIT:
            unit = _unescaped(path.rpartition("/")[2])
            self._tell(self._ears.on_unit, unit, {**self._half.pop(path, {}), **properties})

    def _tell(self, callback: Callable[..., None], unit: str, *what: Any) -> None:
        start, end = self._place.unit_of("*").split("*")
        if unit.startswith(start) and unit.endswith(end):
            callback(unit.removeprefix(start).removesuffix(end), *what)

    def _path(self, name: str) -> str:
        return f"{_PATH}/unit/{_escaped(self._place.unit_of(name))}"

    def _problem(self, name: str, properties: Mapping[str, Any], environment_files: list[str]) -> str | None:
        state, template = properties["LoadState"], self._place.unit
        if state == "loaded":
            directory = self._place.environment_directory
            if str(directory / f"{name}.env") in environment_files:
                return None
            return f"unit {template} does not read its environment; add EnvironmentFile={directory}/%i.env to it"
        if state == "not-found":
            reload = self._systemctl("daemon-reload")
            return f"there is no unit {template}; install it and run {reload}, or set driver.unit"
        if state == "masked":
            return f"unit {template} is masked; run {self._systemctl(f'unmask {template}')}"
        reason, file = properties["LoadError"][1] or state, properties["FragmentPath"] or template
        return f"unit {template} cannot be loaded: {reason}; see systemd-analyze verify {file}"

    def _explained(self, error: BusError, member: str) -> str:
        if error.name in _NO_PERMISSION:
            return (
                f"systemd refused {member}: {error}; let the daemon's user manage these units by a polkit rule for "
                'org.freedesktop.systemd1.manage-units, or use driver.manager = "user"'
            )
        if error.name in _NOBODY:
            return f"no systemd answers on the bus ({error}); start it, or set driver.manager or driver.bus_address"
        return f"systemd refused {member}: {error}" if error.name else f"systemd: {error}"

    def _systemctl(self, verb: str) -> str:
        return f"systemctl {'--user ' if self._place.manager == 'user' else ''}{verb}"


def _escaped(text: str) -> str:
    """Return an object path's part for a unit's name; sd_bus_path_encode(3)."""
    return "".join(char if char.isascii() and char.isalnum() else f"_{ord(char):02x}" for char in text)


def _unescaped(part: str) -> str:
    return re.sub("_([0-9a-f]{2})", lambda found: chr(int(found[1], 16)), part)
