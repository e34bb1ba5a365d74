"""Settings of a pool: what infrastructure code and the daemon must agree on. The pipeline recommends changes to them.

Parsed once, strictly, from any mapping (TOML, YAML, Pulumi configuration): an unknown key, a missing name or
a value of the wrong kind is an error that names the setting. Durations are seconds as a number or ISO 8601
text, and are kept as seconds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from osrdyne_pool.windows import parse_window
from osrdyne_protocol.durations import parse_seconds
from osrdyne_protocol.errors import InvalidKey, InvalidPoolName, SettingsError
from osrdyne_protocol.keys import SHORT_STRING_BYTES, decode
from osrdyne_protocol.names import DEFAULT_INSTANCE, check_pool_name

#: Most windows that one key can have: six a day.
MOST_WINDOWS = 42
#: Most spans after its last activity in which one key can be kept again.
MOST_PREWARMS = 8

#: Default of `RedoSettings.alive_interval`, in seconds.
ALIVE_INTERVAL_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Delays:
    """How long a key stays after its last activity, in seconds."""

    #: From the last activity until the key's queue is unbound.
    unbind_delay: float
    #: From the unbinding until the group is stopped and the queue deleted.
    stop_delay: float
    #: Windows in which the key is kept active without calls, as text; see `windows.parse_window`. No delay follows a
    #: window's end.
    warm: tuple[str, ...] = ()
    #: Spans after the last activity in which the key is made active again without calls: begin and end, ascending. The
    #: stop delay follows each.
    prewarm: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RedoSettings:
    """How `osrdyne jobs redo` finds jobs that were missed. Times are in seconds."""

    #: Between two scans.
    interval: float = 5.0
    #: Most jobs that are read at once: what a scan keeps in memory.
    batch: int = 1000
    #: Most due jobs of one scan. What is due beyond that waits for the next scan, oldest first.
    most: int = 10_000
    #: Until a job that was cast and has not begun is cast again; then twice as long, and so on up to ten times.
    pause: float = 60.0
    #: Until a standby takes over from a leader that is gone. Longer than `interval`.
    lease: float = 15.0
    #: Between two casts for a job that runs, so that the daemon sees that its group is in use. Less than half of the
    #: pool's shortest `unbind_delay`.
    alive_interval: float = ALIVE_INTERVAL_SECONDS
    #: After an outage of the database, for workers to renew their leases: those that ran out meanwhile count as lost
    #: after this time. Not less than the lease of the workers.
    patience: float = 30.0
    #: Until a job that has ended moves to the history.
    archive_after: float = 3600.0
    #: For which the history is kept.
    keep: float = 30 * 86_400.0

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any], *, path: str = "redo") -> RedoSettings:
        """Parse a mapping; as `PoolSettings.from_mapping`."""
        found = cls(**_parsed(values, _REDO_PARSERS, path))
        if found.lease <= found.interval:
            problem = f"must be longer than the interval of {found.interval:g} s: the leader renews it at each scan"
            raise SettingsError(f"{path}.lease", problem)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsSettings:
    """The jobs of a pool, which the package `osrdyne_jobs` adds."""

    redo: RedoSettings = field(default_factory=RedoSettings)

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any], *, path: str = "jobs") -> JobsSettings:
        """Parse a mapping; as `PoolSettings.from_mapping`."""
        tables = _parsed(values, {"redo": _table}, path)
        return cls(redo=RedoSettings.from_mapping(tables.get("redo", {}), path=f"{path}.redo"))


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolLimits:
    """What a pool may take at once. The limits of the broker follow from it: `broker.limits`."""

    #: Worker groups, and so request queues.
    groups: int = 2000
    #: Connections of all its clients, and of all its workers.
    client_connections: int = 2000
    worker_connections: int = 10_000

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any], *, path: str = "limits") -> PoolLimits:
        """Parse a mapping; as `PoolSettings.from_mapping`."""
        return cls(**_parsed(values, {each.name: _positive_integer for each in fields(cls)}, path))


@dataclass(frozen=True, slots=True)
class PoolSettings:
    """One pool of one instance. Durations in seconds, sizes in messages or bytes."""

    #: Name of the pool; see `names.check_pool_name`.
    name: str
    #: Name of the deployment; the same for leader and standbys, different for any other on the same engine.
    instance: str = DEFAULT_INSTANCE
    #: Which keys may be woken: a regular expression that the whole key matches, or a list of keys; None for every key.
    keys: str | tuple[str, ...] | None = None
    #: Without activity for this long, a key's queue is unbound.
    unbind_delay: float = 600.0
    #: Unbound for this long, the group is stopped and the queue deleted.
    stop_delay: float = 600.0
    #: Other delays for single keys, and the windows in which these are kept active.
    overrides: Mapping[str, Delays] = field(default_factory=dict)
    #: A request that waits longer than this in its request queue is answered `expired`.
    message_ttl: float = 1800.0
    #: A request that waits longer than this as an orphan is answered `expired`.
    orphan_ttl: float = 600.0
    #: Failed deliveries after which a request is poison (RabbitMQ "Poison Message Handling").
    delivery_limit: int = 5
    #: After so many starts in a row that ended before `started`, requests are answered `start_failed`; 0: never.
    start_failures: int = 3
    #: Whether an error reply says how workers of its key ended, with the last line that they wrote.
    worker_reasons: bool = True
    #: Longest time a worker may hold one request before the broker cancels it (RabbitMQ "Consumers").
    consumer_timeout: float = 1800.0
    #: Activity events kept for the daemon; beyond this the oldest are dropped.
    activity_max_length: int = 100_000
    #: Messages and bytes of bodies in each of the two queues of the poison inventory.
    poison_max_length: int = 10_000
    poison_max_bytes: int = 1_000_000_000
    #: How long the events stream keeps events.
    events_max_age: float = 7 * 86_400.0
    #: Largest size of the events stream, in bytes.
    events_max_bytes: int = 1_000_000_000
    #: What it may take at once.
    limits: PoolLimits = field(default_factory=PoolLimits)
    #: Other pools of the same virtual host, by name, and what they may take: its limits are for all of them.
    neighbours: Mapping[str, PoolLimits] = field(default_factory=dict)
    #: How jobs of this pool are managed; None for a pool without jobs.
    jobs: JobsSettings | None = None

    def __post_init__(self) -> None:
        try:
            check_pool_name(self.name)
        except InvalidPoolName as error:
            raise SettingsError("pool.name", str(error)) from error

    def delays(self, key: str) -> Delays:
        """Return the delays of a key: its override, or the pool's."""
        return self.overrides.get(key) or Delays(self.unbind_delay, self.stop_delay)

    def may_wake(self, key: str) -> bool:
        """Return whether a request for a key may make a queue and a worker group."""
        if isinstance(self.keys, str):
            return re.fullmatch(self.keys, key) is not None
        return self.keys is None or key in self.keys

    @property
    def shortest_unbind_delay(self) -> float:
        """Of all keys, in seconds."""
        return min([self.unbind_delay, *(override.unbind_delay for override in self.overrides.values())])

    def redo(self) -> RedoSettings:
        """Return the settings of redo. The default `alive_interval` is shortened where keys are unbound sooner."""
        redo = (self.jobs or JobsSettings()).redo
        if redo.alive_interval != ALIVE_INTERVAL_SECONDS:
            return redo
        return replace(redo, alive_interval=min(ALIVE_INTERVAL_SECONDS, self.shortest_unbind_delay / 3))

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any], *, path: str = "pool") -> PoolSettings:
        """Parse a mapping. Raises `SettingsError` with the setting's path and what would be right."""
        _refuse_unknown(values, set(_PARSERS), path)
        if "name" not in values:
            raise SettingsError(f"{path}.name", "is missing; give the pool a name, for example 'core'")
        parsed = _parsed(values, _PARSERS, path)
        overrides, jobs = parsed.pop("overrides", {}), parsed.pop("jobs", None)
        parsed["neighbours"] = _neighbours(parsed.get("neighbours", {}), parsed["name"], f"{path}.neighbours")
        parsed["limits"] = PoolLimits.from_mapping(parsed.get("limits", {}), path=f"{path}.limits")
        plain = cls(**parsed)
        pool = replace(
            plain,
            overrides=_overrides(overrides, plain, f"{path}.overrides"),
            jobs=None if jobs is None else JobsSettings.from_mapping(jobs, path=f"{path}.jobs"),
        )
        alive, shortest = pool.redo().alive_interval, pool.shortest_unbind_delay
        if alive >= shortest / 2:
            problem = f"must be less than {shortest / 2:g}, half of the shortest unbind_delay, not {alive:g}"
            raise SettingsError(f"{path}.jobs.redo.alive_interval", problem)
        return pool


def _parsed(values: Mapping[str, Any], parsers: Mapping[str, Callable[[object], Any]], path: str) -> dict[str, Any]:
    _refuse_unknown(values, set(parsers), path)
    parsed: dict[str, Any] = {}
    for name, value in values.items():
        try:
            parsed[name] = parsers[name](value)
        except SettingsError:
            raise
        except ValueError as error:
            raise SettingsError(f"{path}.{name}", str(error)) from error
    return parsed


def _refuse_unknown(values: Mapping[str, Any], known: set[str], path: str) -> None:
    for name in values:
        if name not in known:
            raise SettingsError(f"{path}.{name}", f"is not a setting; known are {', '.join(sorted(known))}")


def _neighbours(values: Mapping[str, Any], name: str, path: str) -> dict[str, PoolLimits]:
    result: dict[str, PoolLimits] = {}
    for other, entry in values.items():
        here = f"{path}.{other}"
        try:
            check_pool_name(other)
        except InvalidPoolName as error:
            raise SettingsError(here, str(error)) from error
        if other == name or not isinstance(entry, Mapping):
            raise SettingsError(here, "is this pool itself" if other == name else "is not a table of limits")
        result[other] = PoolLimits.from_mapping(entry, path=here)
    return result


def _overrides(values: Mapping[str, Any], base: PoolSettings, path: str) -> dict[str, Delays]:
    known = {each.name for each in fields(Delays)}
    result: dict[str, Delays] = {}
    for key, entry in values.items():
        here = f"{path}.{key!r}"
        try:
            decode(key)
        except InvalidKey as error:
            raise SettingsError(here, str(error)) from error
        if not base.may_wake(key):
            raise SettingsError(here, "is a key that pool.keys leaves out; add it there, or remove it here")
        if not isinstance(entry, Mapping):
            raise SettingsError(here, "is not a table; give unbind_delay, stop_delay, warm or prewarm")
        _refuse_unknown(entry, known, here)
        result[key] = Delays(
            unbind_delay=_delay(entry.get("unbind_delay", base.unbind_delay), f"{here}.unbind_delay"),
            stop_delay=_delay(entry.get("stop_delay", base.stop_delay), f"{here}.stop_delay"),
            warm=_warm(entry.get("warm", ()), f"{here}.warm"),
            prewarm=_prewarm(entry.get("prewarm", ()), f"{here}.prewarm"),
        )
    return result


def _warm(value: object, path: str) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or len(value) > MOST_WINDOWS:
        raise SettingsError(path, f"is not a list of at most {MOST_WINDOWS} windows")
    for number, entry in enumerate(value):
        try:
            parse_window(entry)
        except ValueError as error:
            raise SettingsError(f"{path}[{number}]", str(error)) from error
    return tuple(value)


def _prewarm(value: object, path: str) -> tuple[tuple[float, float], ...]:
    if not isinstance(value, list | tuple) or len(value) > MOST_PREWARMS:
        raise SettingsError(path, f"is not a list of at most {MOST_PREWARMS} spans")
    found: list[tuple[float, float]] = []
    for number, entry in enumerate(value):
        here, last = f"{path}[{number}]", found[-1][1] if found else 0.0
        if not isinstance(entry, list | tuple) or len(entry) != 2:
            raise SettingsError(here, f"{entry!r} is not a span; give its begin and end, as in [3300, 3900]")
        begin, end = (_delay(each, here) for each in entry)
        if not last < begin < end:
            raise SettingsError(here, f"{entry!r} must begin after {last:g} seconds, and end after its begin")
        found.append((begin, end))
    return tuple(found)


def _delay(value: object, path: str) -> float:
    try:
        return _positive_seconds(value)
    except ValueError as error:
        raise SettingsError(path, str(error)) from error


def _text(value: object) -> str:
    if not isinstance(value, str) or not value or len(value.encode()) > SHORT_STRING_BYTES:
        raise ValueError(f"{value!r} is not text of 1 to {SHORT_STRING_BYTES} bytes")
    return value


def _keys(value: object) -> str | tuple[str, ...] | None:
    if isinstance(value, str):
        try:
            re.compile(value)
        except (re.error, RecursionError, OverflowError) as error:
            raise ValueError(f"{value!r} is not a regular expression: {error}") from None
    elif isinstance(value, list | tuple) and value:
        try:
            return tuple(decode(item) for item in value)
        except (InvalidKey, TypeError) as error:
            raise ValueError(f"holds what is not a key: {error}") from None
    elif value is not None:
        raise ValueError(f"{value!r} is neither a regular expression nor a list of keys")
    return value


def _positive_seconds(value: object) -> float:
    seconds = parse_seconds(value)
    if seconds == 0:
        raise ValueError("must be longer than 0 seconds")
    return seconds


def _positive_integer(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{value!r} is not an integer of 1 or more")
    return value


def _count(value: object) -> int:
    return 0 if value == 0 and not isinstance(value, bool) else _positive_integer(value)


def _boolean(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{value!r} is neither true nor false")
    return value


def _table_or_none(value: object) -> Mapping[str, Any] | None:
    """None is what a pool without jobs has as plain data."""
    return None if value is None else _table(value)


def _table(value: object) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(f"{value!r} is not a table")
    return value


_PARSERS: Mapping[str, Callable[[object], Any]] = {
    "name": _text,
    "instance": _text,
    "keys": _keys,
    "unbind_delay": _positive_seconds,
    "stop_delay": _positive_seconds,
    "overrides": _table,
    "message_ttl": _positive_seconds,
    "orphan_ttl": _positive_seconds,
    "delivery_limit": _positive_integer,
    "worker_reasons": _boolean,
    "start_failures": _count,
    "consumer_timeout": _positive_seconds,
    "activity_max_length": _positive_integer,
    "poison_max_length": _positive_integer,
    "poison_max_bytes": _positive_integer,
    "events_max_age": _positive_seconds,
    "events_max_bytes": _positive_integer,
    "limits": _table,
    "neighbours": _table,
    "jobs": _table_or_none,
}
_REDO_PARSERS: Mapping[str, Callable[[object], Any]] = {
    "interval": _positive_seconds,
    "batch": _positive_integer,
    "most": _positive_integer,
    "pause": _positive_seconds,
    "lease": _positive_seconds,
    "alive_interval": _positive_seconds,
    "patience": _positive_seconds,
    "archive_after": parse_seconds,
    "keep": parse_seconds,
}
