"""A settings file, which is TOML: the daemon takes all of it, other processes of the pool its table `[pool]`."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any

from osrdyne_pool.settings import PoolSettings
from osrdyne_protocol.errors import SettingsError


def read(path: Path) -> dict[str, Any]:
    """Return the tables of a settings file. Raises SettingsError."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise SettingsError(str(path), "does not exist; name the settings file with --settings") from None
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(str(path), f"is not TOML: {error}") from error
    except RecursionError:
        raise SettingsError(str(path), "is not TOML: nested too deeply") from None
    except (OSError, ValueError) as error:
        raise SettingsError(str(path), f"cannot be read: {error}") from error


def pool(table: object) -> PoolSettings:
    """Return the settings of a pool from the table `[pool]`. Raises SettingsError, also where there is no table."""
    if not isinstance(table, Mapping):
        raise SettingsError("pool", "is missing; give a table [pool] with at least a name")
    return PoolSettings.from_mapping(table)


def read_pool(path: Path) -> PoolSettings:
    """Return the settings of the pool that a settings file describes. Raises SettingsError, which names the file."""
    try:
        return pool(read(path).get("pool"))
    except SettingsError as error:
        if error.path == str(path):
            raise
        raise SettingsError(f"{path}: {error.path}", error.problem) from None


def pool_table(pool: PoolSettings) -> dict[str, Any]:
    """Return the table `[pool]` that gives a program these settings; `settings_text` writes it.

    What is the default is left out. So a program of the release before takes it, too, unless it has a setting that is
    newer: it would refuse one that it does not know.
    """
    return _different(pool)


def _different(settings: Any) -> dict[str, Any]:
    """Return the fields of a dataclass that differ from their defaults, as plain data."""
    found: dict[str, Any] = {}
    for field in fields(settings):
        value = getattr(settings, field.name)
        default = field.default if field.default_factory is MISSING else field.default_factory()
        if value != default:
            found[field.name] = _plain(value)
    return found


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return _different(value)
    return {name: _plain(entry) for name, entry in value.items()} if isinstance(value, Mapping) else value
