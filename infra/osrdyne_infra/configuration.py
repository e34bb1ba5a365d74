"""The stack's configuration, parsed once into one strict model.

Pure: takes the raw values (texts, structured ones as JSON, as Pulumi hands them to a program) and the names of those
that are secret. An unknown, missing or ill-typed value is a ConfigurationError with its path, what is allowed and an
example. Durations are seconds as a number or ISO 8601 text.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field, fields, replace
from typing import Any
from urllib.parse import urlsplit

from osrdyne_infra.errors import ConfigurationError
from osrdyne_protocol.durations import parse_seconds
from osrdyne_protocol.errors import SettingsError
from osrdyne_protocol.settings import PoolSettings
from osrdyne_protocol.topology import Users

NAMESPACE = "osrdyne"
#: The one setting that is a secret, and has to be.
HIDDEN = "admin_password"
ROLES = tuple(one.name for one in fields(Users))

#: Every setting, with what a person could write for it.
EXAMPLES: Mapping[str, str] = {
    "broker": "osrdyne:broker: {management: 'http://127.0.0.1:15672', amqp: 'amqp://127.0.0.1:5672', admin: admin}",
    HIDDEN: f"pulumi config set --secret {HIDDEN}",
    "vhost": "osrdyne:vhost: osrdyne",
    "instance": "osrdyne:instance: dev",
    "pools": "osrdyne:pools: [{name: core, unbind_delay: PT10M, delivery_limit: 5}]",
    "lose_messages_of": "osrdyne:lose_messages_of: [core]",
    "rotate": "osrdyne:rotate: {core: {worker: 2}}",
}
#: Pulumi's own namespaces, which say nothing about the stack's resources.
FOREIGN = ("pulumi",)


@dataclass(frozen=True)
class BrokerAddress:
    """Where the broker is, and who declares things there."""

    #: Management API, as this machine and the daemon reach it; no user, no path.
    management: str
    #: AMQP, as the pool's programs reach it; no user, no vhost. Options of TLS in its query.
    amqp: str
    #: Name of a user with the tag `administrator`.
    admin: str
    #: PEM file of the CA that vouches for the management API, where this machine does not know it.
    cacertfile: str = ""
    #: Seconds by which the broker's counts of messages may be late (RabbitMQ's default interval is 5 s).
    statistics_interval: float = 7.5


@dataclass(frozen=True)
class StackSettings:
    """All that a stack declares."""

    broker: BrokerAddress
    admin_password: str = field(repr=False)
    vhost: str
    #: Name of this deployment; part of the users' names.
    instance: str
    pools: tuple[PoolSettings, ...]
    #: Pools whose queues may be deleted with the messages that they hold.
    lose_messages_of: tuple[str, ...] = ()
    #: Pool -> role -> any text: another text is another password.
    rotate: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


def parse(raw: Mapping[str, str], secret: Set[str]) -> StackSettings:
    """Return the settings. `raw` and `secret` have full names, such as `osrdyne:vhost`. Raises ConfigurationError."""
    values = _known(raw)
    _check_secrets(values, secret)
    broker = _broker(_structure(values, "broker"))
    instance = _text(values, "instance")
    pools = _pools(_structure(values, "pools"), instance)
    names = tuple(one.name for one in pools)
    return StackSettings(
        broker=broker,
        admin_password=_text(values, HIDDEN),
        vhost=_text(values, "vhost"),
        instance=instance,
        pools=pools,
        lose_messages_of=_names(_structure(values, "lose_messages_of", default=[]), names),
        rotate=_rotations(_structure(values, "rotate", default={}), names),
    )


def _known(raw: Mapping[str, str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for path, value in raw.items():
        namespace, _, name = path.partition(":")
        if namespace in FOREIGN:
            continue
        if namespace != NAMESPACE or name not in EXAMPLES:
            known = ", ".join(f"{NAMESPACE}:{one}" for one in EXAMPLES)
            raise ConfigurationError(path, f"is not a setting; known are {known}", EXAMPLES["pools"])
        found[name] = value
    return found


def _check_secrets(values: Mapping[str, str], secret: Set[str]) -> None:
    """Refuse a password in the clear, and a secret that would come out in names, plans and outputs."""
    for name in values:
        if (f"{NAMESPACE}:{name}" in secret) != (name == HIDDEN):
            problem = (
                "is a password in the clear; set it as a secret" if name == HIDDEN else "is no secret, but set as one"
            )
            raise ConfigurationError(f"{NAMESPACE}:{name}", problem, EXAMPLES[name])


def _text(values: Mapping[str, str], name: str) -> str:
    value = values.get(name)
    if not value or len(value.encode()) > 255:
        problem = "is missing" if value is None else "is no text of 1 to 255 bytes"
        raise ConfigurationError(f"{NAMESPACE}:{name}", problem, EXAMPLES[name])
    return value


def _structure(values: Mapping[str, str], name: str, default: object = None) -> Any:
    if name not in values:
        if default is None:
            raise ConfigurationError(f"{NAMESPACE}:{name}", "is missing", EXAMPLES[name])
        return default
    try:
        return json.loads(values[name])
    except ValueError:
        return values[name]


def _broker(given: object) -> BrokerAddress:
    path, example = f"{NAMESPACE}:broker", EXAMPLES["broker"]
    table = _table(given, path, tuple(_BROKER), example)
    for name in ("management", "amqp", "admin"):
        if name not in table:
            raise ConfigurationError(f"{path}.{name}", "is missing", example)
    parsed: dict[str, Any] = {}
    for name, value in table.items():
        try:
            parsed[name] = _BROKER[name](value)
        except ValueError as error:
            raise ConfigurationError(f"{path}.{name}", str(error), example) from None
    return BrokerAddress(**parsed)


def _address(*schemes: str) -> Callable[[object], str]:
    def parse_address(value: object) -> str:
        expected = f"give {' or '.join(f'{one}://HOST:PORT' for one in schemes)}, without user and path"
        try:
            split = urlsplit(value if isinstance(value, str) else "")
            sound = split.scheme in schemes and split.hostname and split.path in ("", "/") and split.port != 0
        except ValueError:
            sound = False
        if not sound or split.username is not None or split.password is not None:
            # What was found may hold a password.
            raise ValueError(f"is no such address; {expected}")
        return str(value).replace("/?", "?").rstrip("/")

    return parse_address


def _filled(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"{value!r} is no text of 1 byte or more")
    return value


_BROKER: Mapping[str, Callable[[object], object]] = {
    "management": _address("http", "https"),
    "amqp": _address("amqp", "amqps"),
    "admin": _filled,
    "cacertfile": _filled,
    "statistics_interval": parse_seconds,
}


def _pools(given: object, instance: str) -> tuple[PoolSettings, ...]:
    path, example = f"{NAMESPACE}:pools", EXAMPLES["pools"]
    if not isinstance(given, list) or not given:
        raise ConfigurationError(path, f"{given!r} is no list of one pool or more", example)
    pools: list[PoolSettings] = []
    for number, one in enumerate(given):
        here = f"{path}[{number}]"
        table = _table(one, here, tuple(name.name for name in fields(PoolSettings) if name.name != "instance"), example)
        try:
            pool = PoolSettings.from_mapping(table, path=here)
        except SettingsError as error:
            # The name is judged by the model itself, which does not know where it stands.
            raise ConfigurationError(error.path.replace("pool.", f"{here}.", 1), error.problem, example) from None
        if pool.name in [other.name for other in pools]:
            raise ConfigurationError(f"{here}.name", f"{pool.name!r} is the name of two pools; choose another", example)
        pools.append(replace(pool, instance=instance))
    return tuple(pools)


def _names(given: object, pools: tuple[str, ...]) -> tuple[str, ...]:
    path, example = f"{NAMESPACE}:lose_messages_of", EXAMPLES["lose_messages_of"]
    if not isinstance(given, list):
        raise ConfigurationError(path, f"{given!r} is no list of pools", example)
    for number, one in enumerate(given):
        if one not in pools:
            problem = f"{one!r} is no pool of this stack; its pools are {', '.join(pools)}"
            raise ConfigurationError(f"{path}[{number}]", problem, example)
    return tuple(given)


def _rotations(given: object, pools: tuple[str, ...]) -> dict[str, dict[str, str]]:
    path, example = f"{NAMESPACE}:rotate", EXAMPLES["rotate"]
    turns: dict[str, dict[str, str]] = {}
    for pool, roles in _table(given, path, pools, example).items():
        turns[pool] = {}
        for role, turn in _table(roles, f"{path}.{pool}", ROLES, example).items():
            if isinstance(turn, bool) or not isinstance(turn, str | int):
                raise ConfigurationError(f"{path}.{pool}.{role}", f"{turn!r} is no text or integer", example)
            turns[pool][role] = str(turn)
    return turns


def _table(given: object, path: str, known: tuple[str, ...], example: str) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise ConfigurationError(path, f"{given!r} is no table of {', '.join(known)}", example)
    for name in given:
        if name not in known:
            raise ConfigurationError(f"{path}.{name}", f"is not a setting; known are {', '.join(known)}", example)
    return given
