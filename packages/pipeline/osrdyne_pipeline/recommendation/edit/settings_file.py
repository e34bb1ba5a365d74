"""A change of a daemon's settings file, which is TOML. The daemon finds it there, and takes it within seconds.

Only the pool's delays and overrides are exchanged; all else stays as it is. What is written is read again, and must be
what the daemon accepts.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import tomlkit
from tomlkit.container import OutOfOrderTableProxy
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import InlineTable, Table

from osrdyne_pipeline.recommendation.edit.change import CHANGED, FileChange, read
from osrdyne_pipeline.recommendation.edit.lines import duration
from osrdyne_pipeline.recommendation.edit.wanted import MARK, NotChanged, WantedOverride, WantedSettings
from osrdyne_pool import settings_file
from osrdyne_pool.settings import PoolSettings
from osrdyne_protocol.errors import SettingsError


def settings(wanted: WantedSettings, path: Path) -> FileChange:
    """Return the change of a daemon's settings file. Raises `NotChanged`."""
    was, before = settings_pool(wanted.pool, path), read(path)
    try:
        document = tomlkit.parse(before)
        theirs = _theirs(document["pool"])
        _exchange(document["pool"], wanted.beside({key: was.overrides[key] for key in theirs}), path)
        after = tomlkit.dumps(document)
        becomes = settings_file.pool(tomllib.loads(after).get("pool"))
    except SettingsError as error:
        raise NotChanged(f"{path} would not be accepted: {error}") from error
    # ValueError: the editor's own for a table within braces, and that of tomllib.
    except (TOMLKitError, ValueError) as error:
        raise NotChanged(f"{path} is written in a way that cannot be changed: {error}; change it by hand") from error
    if _rest(before) != _rest(after):
        raise NotChanged(f"{path} is written in a way that cannot be changed; change it by hand")
    return FileChange(path, before, after, was, becomes, theirs)


def settings_pool(name: str, path: Path) -> PoolSettings:
    """Return a pool's settings as the daemon reads them. Raises `NotChanged`."""
    try:
        found = settings_file.read_pool(path)
    except SettingsError as error:
        raise NotChanged(str(error)) from error
    if found.name != name:
        raise NotChanged(f"{path} is of the pool {found.name!r}, not of {name!r}")
    return found


def _exchange(pool: Any, wanted: WantedSettings, path: Path) -> None:
    if isinstance(pool, OutOfOrderTableProxy):
        raise NotChanged(f"{path} has parts of [pool] between other tables; write them one after the other")
    iso = any(isinstance(pool.get(name), str) for name in ("unbind_delay", "stop_delay"))
    for name, seconds in (("unbind_delay", wanted.unbind_delay), ("stop_delay", wanted.stop_delay)):
        pool[name] = _seconds(seconds, iso)
    # A comment above would stand below the overrides, where the table ends.
    pool.value.item("unbind_delay").comment(f"{MARK} {' '.join(wanted.summary)}")
    overrides = pool.get("overrides")
    if overrides is None:
        overrides = pool["overrides"] = tomlkit.table(is_super_table=True)
    if not isinstance(overrides, Table):
        raise NotChanged(f"{path} has overrides within braces; write each as a table, [pool.overrides.KEY]")
    ours = {each.key for each in wanted.overrides}
    for key in [key for key, override in overrides.items() if _marked(override) and key not in ours]:
        overrides.remove(key)
    for each in wanted.overrides:
        there = overrides.get(each.key)
        if isinstance(there, InlineTable) or (isinstance(there, Table) and not there.is_super_table()):
            # Where it stands, with what a person wrote above it and in it.
            _fill(there, each, iso)
            continue
        if there is not None:
            overrides.remove(each.key)
        made = tomlkit.table()
        _fill(made, each, iso)
        overrides.append(each.key, made)
    if not overrides:
        pool.remove("overrides")


def _theirs(pool: Any) -> frozenset[str]:
    """Return the keys whose overrides a person wrote: those without our mark."""
    return frozenset(key for key, override in pool.get("overrides", {}).items() if not _marked(override))


def _marked(override: Any) -> bool:
    return isinstance(override, Table | InlineTable) and override.trivia.comment.startswith(MARK)


def _fill(table: Table | InlineTable, wanted: WantedOverride, iso: bool) -> None:
    """Write an override into a table."""
    _say(table, wanted)
    for name in ("warm", "prewarm"):
        table.pop(name, None)
    table["unbind_delay"] = _seconds(wanted.delays.unbind_delay, iso)
    table["stop_delay"] = _seconds(wanted.delays.stop_delay, iso)
    if wanted.delays.warm:
        table["warm"] = tomlkit.array()
        table["warm"].extend(wanted.delays.warm)
        table["warm"].multiline(isinstance(table, Table))
    if wanted.delays.prewarm:
        table["prewarm"] = [[_seconds(begin, False), _seconds(end, False)] for begin, end in wanted.delays.prewarm]


def _say(table: Table | InlineTable, wanted: WantedOverride) -> None:
    """Write our comment of an override before that of a person, or leave that alone where the override is theirs."""
    there = table.trivia.comment
    own = _beside_ours(there) if there.startswith(MARK) else there
    if own and wanted.theirs:
        table.comment(own)
    else:
        table.comment(" ".join(part for part in (wanted.comment, own) if part))


def _beside_ours(comment: str) -> str:
    """Return what a person wrote, of a comment that begins with ours."""
    _, found, own = comment.partition(" # ")
    return f"# {own}" if found else ""


def _seconds(seconds: float, iso: bool) -> str | float | int:
    if iso and seconds == round(seconds):
        return duration(seconds, iso)
    return int(seconds) if seconds == round(seconds) else seconds


def _rest(text: str) -> Any:
    """Everything but what a change may change."""
    document = tomllib.loads(text)
    for name in CHANGED:
        document["pool"].pop(name, None)
    return document
