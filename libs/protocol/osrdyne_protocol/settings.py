"""Settings of a pool: what infrastructure code and the daemon must agree on. The pipeline recommends changes to them.

Parsed once, strictly, from any mapping (TOML, YAML, Pulumi configuration): an unknown key, a missing name or
a value of the wrong kind is an error that names the setting. Durations are seconds as a number or ISO 8601
text, and are kept as seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from osrdyne_protocol.durations import parse_seconds
from osrdyne_protocol.errors import InvalidKey, InvalidPoolName, SettingsError
from osrdyne_protocol.keys import SHORT_STRING_BYTES, decode
from osrdyne_protocol.names import check_pool_name
from osrdyne_protocol.windows import parse_window

#: The instance of a deployment that has no other on the same engine or broker.
DEFAULT_INSTANCE = "default"

#: Most windows that one key can have: six a day.
MOST_WINDOWS = 42


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


@dataclass(frozen=True, slots=True)
class PoolSettings:
    """One pool of one instance. Durations in seconds, sizes in messages or bytes."""

    #: Name of the pool; see `names.check_pool_name`.
    name: str
    #: Name of the deployment; the same for leader and standbys, different for any other on the same engine.
    instance: str = DEFAULT_INSTANCE
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
    #: Longest time a worker may hold one request before the broker cancels it (RabbitMQ "Consumers").
    consumer_timeout: float = 1800.0
    #: Activity events kept for the daemon; beyond this the oldest are dropped.
    activity_max_length: int = 100_000
    #: Messages kept in the poison inventory; beyond this copies are refused.
    poison_max_length: int = 10_000
    #: How long the events stream keeps events.
    events_max_age: float = 7 * 86_400.0
    #: Largest size of the events stream, in bytes.
    events_max_bytes: int = 1_000_000_000

    def __post_init__(self) -> None:
        try:
            check_pool_name(self.name)
        except InvalidPoolName as error:
            raise SettingsError("pool.name", str(error)) from error

    def delays(self, key: str) -> Delays:
        """Return the delays of a key: its override, or the pool's."""
        return self.overrides.get(key) or Delays(self.unbind_delay, self.stop_delay)

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any], *, path: str = "pool") -> PoolSettings:
        """Parse a mapping. Raises `SettingsError` with the setting's path and what would be right."""
        known = {one.name for one in fields(cls)}
        _refuse_unknown(values, known, path)
        if "name" not in values:
            raise SettingsError(f"{path}.name", "is missing; give the pool a name, for example 'core'")
        parsed: dict[str, Any] = {}
        for name, value in values.items():
            try:
                parsed[name] = _PARSERS[name](value)
            except SettingsError:
                raise
            except ValueError as error:
                raise SettingsError(f"{path}.{name}", str(error)) from error
        if "overrides" in parsed:
            base = cls(**{name: value for name, value in parsed.items() if name != "overrides"})
            parsed["overrides"] = _overrides(parsed["overrides"], base, f"{path}.overrides")
        return cls(**parsed)


def _refuse_unknown(values: Mapping[str, Any], known: set[str], path: str) -> None:
    for name in values:
        if name not in known:
            raise SettingsError(f"{path}.{name}", f"is not a setting; known are {', '.join(sorted(known))}")


def _overrides(values: Mapping[str, Any], base: PoolSettings, path: str) -> dict[str, Delays]:
    known = {one.name for one in fields(Delays)}
    result: dict[str, Delays] = {}
    for key, entry in values.items():
        here = f"{path}.{key!r}"
        try:
            decode(key)
        except InvalidKey as error:
            raise SettingsError(here, str(error)) from error
        if not isinstance(entry, Mapping):
            raise SettingsError(here, "is no table; give unbind_delay, stop_delay or warm")
        _refuse_unknown(entry, known, here)
        result[key] = Delays(
            unbind_delay=_delay(entry.get("unbind_delay", base.unbind_delay), f"{here}.unbind_delay"),
            stop_delay=_delay(entry.get("stop_delay", base.stop_delay), f"{here}.stop_delay"),
            warm=_warm(entry.get("warm", ()), f"{here}.warm"),
        )
    return result


def _warm(value: object, path: str) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or len(value) > MOST_WINDOWS:
        raise SettingsError(path, f"is no list of at most {MOST_WINDOWS} windows")
    for number, entry in enumerate(value):
        try:
            parse_window(entry)
        except ValueError as error:
            raise SettingsError(f"{path}[{number}]", str(error)) from error
    return tuple(value)


def _delay(value: object, path: str) -> float:
    try:
        return _positive_seconds(value)
    except ValueError as error:
        raise SettingsError(path, str(error)) from error


def _text(value: object) -> str:
    if not isinstance(value, str) or not value or len(value.encode()) > SHORT_STRING_BYTES:
        raise ValueError(f"{value!r} is no text of 1 to {SHORT_STRING_BYTES} bytes")
    return value


def _positive_seconds(value: object) -> float:
    seconds = parse_seconds(value)
    if seconds == 0:
        raise ValueError("must be longer than 0 seconds")
    return seconds


def _positive_integer(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{value!r} is no integer of 1 or more")
    return value


def _table(value: object) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(f"{value!r} is no table of keys")
    return value


_PARSERS: Mapping[str, Callable[[object], Any]] = {
    "name": _text,
    "instance": _text,
    "unbind_delay": _positive_seconds,
    "stop_delay": _positive_seconds,
    "overrides": _table,
    "message_ttl": _positive_seconds,
    "orphan_ttl": _positive_seconds,
    "delivery_limit": _positive_integer,
    "consumer_timeout": _positive_seconds,
    "activity_max_length": _positive_integer,
    "poison_max_length": _positive_integer,
    "events_max_age": _positive_seconds,
    "events_max_bytes": _positive_integer,
}
