"""A change of a daemon's settings file, which is TOML. The daemon finds it there, and takes it within seconds.

Only the pool's delays and overrides are exchanged; all else stays as it is. What is written is read again, and must be
what the daemon accepts.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import tomlkit
from tomlkit.container import OutOfOrderTableProxy
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import InlineTable, Table

from osrdyne_pipeline.recommendation.edit.change import CHANGED, FileChange, read
from osrdyne_pipeline.recommendation.edit.lines import duration, is_comment, lines_of
from osrdyne_pipeline.recommendation.edit.wanted import MARK, NotChanged, WantedOverride, WantedSettings
from osrdyne_pool import settings_file
from osrdyne_pool.settings import PoolSettings
from osrdyne_protocol.errors import SettingsError

#: A table's first line that bears our mark.
_OURS = re.compile(rf"[^\n]*\.[^\n]*\][ \t]*{MARK}")


def settings(wanted: WantedSettings, path: Path) -> FileChange:
    """Return the change of a daemon's settings file. Raises `NotChanged`."""
    was, before = settings_pool(wanted.pool, path), read(path)
    # A byte order mark stays where it is, and the editor writes line feeds alone.
    text = before.removeprefix("\ufeff")
    newline = "\r\n" if 0 < before.count("\n") == before.count("\r\n") else "\n"
    text = text.replace(newline, "\n")
    try:
        theirs = _theirs(tomlkit.parse(text)["pool"])
        document = tomlkit.parse(_with_delays(_without_ours(text, {each.key for each in wanted.overrides})))
        _exchange(document["pool"], wanted.beside({key: was.overrides[key] for key in theirs}), path)
        after = tomlkit.dumps(document)
        becomes = settings_file.pool(tomllib.loads(after).get("pool"))
    except SettingsError as error:
        raise NotChanged(f"{path} would not be accepted: {error}") from error
    # ValueError: the editor's own for a table within braces, and that of tomllib.
    except (TOMLKitError, ValueError) as error:
        raise NotChanged(f"{path} is written in a way that cannot be changed: {error}; change it by hand") from error
    kept = theirs - {each.key for each in wanted.overrides}
    if _rest(text, kept) != _rest(after, kept):
        raise NotChanged(f"{path} is written in a way that cannot be changed; change it by hand")
    mark = "\ufeff" if before.startswith("\ufeff") else ""
    return FileChange(path, before, mark + after.replace("\n", newline), was, becomes, theirs)


def settings_pool(name: str, path: Path) -> PoolSettings:
    """Return a pool's settings as the daemon reads them. Raises `NotChanged`."""
    try:
        found = settings_file.read_pool(path)
    except SettingsError as error:
        raise NotChanged(str(error)) from error
    if found.name != name:
        raise NotChanged(f"{path} is of the pool {found.name!r}, not of {name!r}")
    return found


def _without_ours(text: str, wanted: set[str]) -> str:
    """Return the text without the tables of overrides that are ours, but for those of the keys that are wanted.

    The editor would remove what stands below a table with it, as a comment of the next one.
    """
    kept: list[str] = []
    for block in re.split(r"(?m)^(?=[ \t]*\[)", text):
        lines, end = lines_of(block), 0
        if _OURS.match(block) and not wanted & set(tomllib.loads(lines[0])["pool"]["overrides"]):
            end = max(number for number, line in enumerate(lines) if line.strip() and not is_comment(line)) + 1
            end = next((number for number in range(end, len(lines)) if not lines[number].strip()), len(lines))
            if kept and not kept[-1].strip():
                # Written before the table.
                kept.pop()
        kept += lines[end:]
    return "".join(kept)


def _with_delays(text: str) -> str:
    """Return the text with both delays in its table [pool]: the editor would write new ones below what follows it."""
    document = tomlkit.parse(text)
    pool = document["pool"]
    if isinstance(pool, Table) and pool.display_name:
        name: Any = pool.value.item("name")
        missing = [f"{each} = 1\n" for each in ("unbind_delay", "stop_delay") if each not in pool]
        name.trivia.trail = "".join([name.trivia.trail or "\n", *missing])
    return tomlkit.dumps(document)


def _exchange(pool: Any, wanted: WantedSettings, path: Path) -> None:
    overrides = pool.get("overrides")
    if isinstance(pool, OutOfOrderTableProxy) or isinstance(overrides, OutOfOrderTableProxy):
        raise NotChanged(f"{path} has settings of the pool in several places; write them one after the other")
    if not isinstance(overrides, Table | None):
        raise NotChanged(f"{path} has overrides within braces; write each as a table, [pool.overrides.KEY]")
    iso = any(isinstance(pool.get(name), str) for name in ("unbind_delay", "stop_delay"))
    for name, seconds in (("unbind_delay", wanted.unbind_delay), ("stop_delay", wanted.stop_delay)):
        pool[name] = _seconds(seconds, iso)
    # A comment above would stand below the overrides, where the table ends.
    pool.value.item("unbind_delay").comment(f"{MARK} {' '.join(wanted.summary)}")
    within = pool if overrides is None else overrides
    below = _cut(_end(within))
    if overrides is None and wanted.overrides:
        overrides = pool["overrides"] = tomlkit.table(is_super_table=True)
    for each in wanted.overrides:
        there = overrides.get(each.key)
        if isinstance(there, InlineTable) or (isinstance(there, Table) and not there.is_super_table()):
            # Where it stands, with what a person wrote above it and in it.
            after = _cut(there)
            _fill(there, each, iso)
            there.value.body.extend(after)
            continue
        if there is not None:
            overrides.remove(each.key)
        made = tomlkit.table()
        _fill(made, each, iso)
        overrides.append(each.key, made)
    _end(within).value.body.extend(below)


def _end(table: Any) -> Any:
    """Return the table that ends last, of a table and those in it."""
    while within := [item for key, item in table.value.body if isinstance(item, Table) and not key.is_dotted()]:
        table = within[-1]
    return table


def _cut(table: Any) -> list[Any]:
    """Take off what is below a table's settings from the first empty line on: it belongs to what follows."""
    body: list[Any] = table.value.body
    first = max((number for number, (key, _) in enumerate(body) if key is not None), default=-1) + 1
    blank = (number for number in range(first, len(body)) if not body[number][1].as_string().strip())
    first = next(blank, len(body))
    below, body[first:] = body[first:], []
    return below


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


def _rest(text: str, theirs: frozenset[str]) -> Any:
    """Everything but what a change may change; the overrides of a person, which `theirs` names, are of it."""
    document = tomllib.loads(text)
    overrides = document["pool"].get("overrides", {})
    for name in CHANGED:
        document["pool"].pop(name, None)
    return document, {key: override for key, override in overrides.items() if key in theirs}
