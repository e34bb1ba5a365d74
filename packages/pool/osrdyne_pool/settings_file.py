"""Reads a settings file, which is TOML: the daemon takes all of it, other processes of the pool its table `[pool]`."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
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
