"""The daemon's settings: one TOML file, parsed once into frozen models; an unknown key is an error.

Credentials are in separate files that it names, or in the environment. Durations are seconds or ISO 8601 text.
`load` is the only entry point; it raises `SettingsError` with path, problem and remedy.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, PositiveInt, SecretStr, ValidationError

from osrdyne.drivers import registry
from osrdyne.settings import environment
from osrdyne_pool import settings_file
from osrdyne_pool.settings import PoolSettings
from osrdyne_protocol.errors import SettingsError
from osrdyne_runtime.settings import secrets
from osrdyne_runtime.settings.model import Seconds, StrictModel, first_problem

#: Addresses with credentials, by table. Each is a setting, or in the file that the setting `{name}_file` names.
_ADDRESSES = (("broker", "amqp_uri"), ("broker", "management_uri"), ("driver", "worker_amqp_uri"))


def _pool(value: object) -> PoolSettings:
    return value if isinstance(value, PoolSettings) else settings_file.pool(value)


class BrokerSettings(StrictModel):
    """How to reach the broker. Each address holds a user and a password, so each is a file or a secret."""

    #: AMQP address of the daemon's own user, or the file that holds it.
    amqp_uri: SecretStr | None = None
    amqp_uri_file: Path | None = None
    #: Address of the management API with the daemon's user, or the file that holds it.
    management_uri: SecretStr | None = None
    management_uri_file: Path | None = None
    #: In seconds. After twice this time without traffic, the daemon and the broker have both ended the connection. The
    #: AMQP heartbeat is two thirds of it.
    heartbeat: Seconds = 5.0
    #: Longest wait for one answer of the broker, in seconds.
    timeout: Seconds = 10.0
    #: How late the broker's queue totals may be, in seconds. The broker's own statistics interval is 5 s, and
    #: totals were measured up to 7 s late.
    statistics_interval: Seconds = 7.5


class LimitSettings(StrictModel):
    """Limits that keep one key, or one overload, from stopping the rest."""

    #: Orphans taken from the broker and not yet settled.
    orphan_prefetch: PositiveInt = 256
    #: Orphans held until their queue is ready: for one key, and bytes in all.
    held_orphans_per_key: PositiveInt = 32
    held_bytes: PositiveInt = 64 * 1024 * 1024
    #: Dead letters taken from the broker and not yet settled.
    dead_letter_prefetch: PositiveInt = 256
    #: New keys that one broker user may wake at once, and seconds until it may wake one more.
    new_keys: PositiveInt = 1000
    new_key_interval: Seconds = 0.1
    #: Worker groups that are started at once, those included that a changed template exchanges.
    starts_in_flight: PositiveInt = 8
    #: Seconds for which a start or an exchange without a sign of life counts as in flight.
    start_hold: Seconds = 10.0
    #: Seconds that a running group may have no consumer, since its start or its last consumer or event.
    start_grace: Seconds = 120.0
    #: Queue declarations, bindings and deletions under way at once.
    queue_actions: PositiveInt = 8


class IntervalSettings(StrictModel):
    """Intervals of periodic checks, in seconds. Nothing waits for these checks: they only correct drift."""

    engine_listing: Seconds = 30.0
    queue_listing: Seconds = 5.0
    topology_check: Seconds = 60.0
    #: Events of a key within this time are one burst.
    debounce: Seconds = 1.0
    #: A queue that others still use is checked again after this time.
    recheck: Seconds = 30.0


class StatusSettings(StrictModel):
    """The HTTP endpoints: health, readiness, metrics, status. They are read-only."""

    host: str = "127.0.0.1"
    #: 0 lets the system choose.
    port: Annotated[int, Field(ge=0, le=65535)] = 8042
    #: Names by which the endpoints are asked for, beside `host`, localhost and any IP address.
    names: tuple[str, ...] = ()


class DaemonSettings(StrictModel):
    """All settings of one daemon."""

    pool: Annotated[Any, BeforeValidator(_pool)]
    broker: BrokerSettings
    driver: Annotated[registry.AnyDriverSettings, Field(discriminator="kind")]
    limits: LimitSettings = LimitSettings()
    intervals: IntervalSettings = IntervalSettings()
    status: StatusSettings = StatusSettings()


def load(path: Path) -> DaemonSettings:
    """Read the settings file; the environment has precedence."""
    values = settings_file.read(path)
    tables = DaemonSettings.model_fields.keys()
    for name in sorted(values.keys() - tables):
        raise SettingsError(f"{path}: {name}", f"is not a setting; there are the tables {', '.join(tables)}")
    try:
        given = environment.read(os.environ, tables)
        _choose_forms(given, values, path)
        return DaemonSettings.model_validate(environment.merged(values, given))
    except ValidationError as error:
        found = first_problem(error, words=_words)
        raise SettingsError(f"{path}: {found.path or 'settings'}", found.problem) from None


def _choose_forms(given: Mapping[str, Any], values: dict[str, Any], path: Path) -> None:
    """Give an address in the environment, in either form, precedence over one in the file, in either form.

    Both forms in one place are an error: it would be unclear which counts.
    """
    for table, name in _ADDRESSES:
        forms = (name, f"{name}_file")
        chosen, rest = (
            [form for form in forms if isinstance(source.get(table), dict) and form in source[table]]
            for source in (given, values)
        )
        for where, found in (("the environment", chosen), (str(path), rest)):
            if len(found) > 1:
                raise secrets.given_twice(f"{table}.{name}", where)
        if chosen:
            for form in rest:
                del values[table][form]


def _words(error: Mapping[str, Any]) -> str | None:
    return registry.broken.get(error["ctx"]["tag"]) if error["type"] == "union_tag_invalid" else None
