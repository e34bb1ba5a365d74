"""Settings in variables: `OSRDYNE_DAEMON_BROKER__AMQP_URI` is `broker.amqp_uri`. Tables and lists are JSON."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from osrdyne.base.credentials import ENVIRONMENT_PREFIX
from osrdyne_protocol import foreign_json
from osrdyne_protocol.errors import SettingsError


def read(environment: Mapping[str, str], tables: Collection[str]) -> dict[str, Any]:
    """Return what variables say of these tables, as a settings file would. Raises SettingsError."""
    found: dict[str, Any] = {}
    named = {name.lower(): text for name, text in environment.items()}
    # So one with a whole table comes before those with a part of it.
    for name in sorted(named):
        *above, last = name.removeprefix(ENVIRONMENT_PREFIX.lower()).split("__")
        if not name.startswith(ENVIRONMENT_PREFIX.lower()) or [*above, last][0] not in tables:
            continue
        table: Any = found
        for part in above:
            table = table.setdefault(part, {})
            if not isinstance(table, dict):
                problem = "is within a setting that another variable says is not a table; a table in a variable is JSON"
                raise SettingsError(f"environment: {name.upper()}", problem)
        table[last] = _value(named[name])
    return found


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of two places. Where both have one, that of `above` counts; tables are merged."""
    both = {
        name: merged(below[name], value)
        for name, value in above.items()
        if isinstance(value, Mapping) and isinstance(below.get(name), Mapping)
    }
    return {**below, **above, **both}


def _value(text: str) -> Any:
    """Return a table or a list; any other text stays one, also where it begins like these, as `[::1]:80` does."""
    if text.lstrip()[:1] not in ("{", "["):
        return text
    try:
        return foreign_json.read(text)
    except foreign_json.UnreadableJson:
        return text
