"""Exchanges the lines of a pool's delays and overrides in a YAML text. Pure.

What is written begins with a comment that bears MARK, so that the next change finds and replaces it. Overrides that a
person wrote for other keys stay.
"""

from __future__ import annotations

import re
from decimal import Decimal

from ruamel.yaml.comments import CommentedMap

from osrdyne_pipeline.recommendation.edit.wanted import MARK, WantedOverride, WantedSettings


def lines_of(text: str) -> list[str]:
    """Return the lines of a text, each with its line break as YAML knows them: other characters do not end a line."""
    return re.findall(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+", text)


def theirs(text: str, pool: CommentedMap) -> frozenset[str]:
    """Return the keys whose overrides a person wrote: those without our mark."""
    overrides, all_lines = pool.get("overrides", {}), lines_of(text)
    return frozenset(str(key) for key in overrides if MARK not in all_lines[overrides.lc.key(key)[0]])


def exchanged(text: str, pool: CommentedMap, wanted: WantedSettings) -> str:
    """Return the text with what is wanted in place of what `pool`, a table in it, says."""
    newline = "\r\n" if "\r\n" in text else "\n"
    ended = text if text.endswith(("\r", "\n")) else text + newline
    all_lines = lines_of(ended)
    top, column = pool.lc.line, pool.lc.col
    bottom = _last(all_lines, top, column)
    # What stands before the pool's first setting: the dash of its list.
    dash = all_lines[top][:column]
    all_lines[top] = " " * column + all_lines[top][column:]
    kept, overrides, at = _without(all_lines, pool, bottom, wanted)
    above = _above(all_lines, pool)
    there = pool.get("overrides")
    inner = " " * (there.lc.col if there else column + 2)
    iso = any(isinstance(pool.get(name), str) for name in ("unbind_delay", "stop_delay"))
    written = [f"{' ' * column}{line}{newline}" for line in _pool_lines(wanted, iso)]
    if wanted.overrides or theirs(text, pool):
        written.append(all_lines[pool.lc.key("overrides")[0]] if there else f"{' ' * column}overrides:{newline}")
    written += overrides
    for override in wanted.overrides:
        written += above.get(override.key, ())
        written += [f"{inner}{line}{newline}" for line in _setting_lines(override, iso)]
    body = kept[:at] + written + kept[at:]
    first = next(number for number, line in enumerate(body) if not is_comment(line))
    body[:first] = [" " * _column(dash) + line.lstrip(" ") for line in body[:first]]
    body[first] = dash + body[first][column:]
    while all_lines[top - 1].lstrip().startswith(MARK):
        top -= 1
    result = "".join(all_lines[:top] + body + all_lines[bottom + 1 :])
    return result if ended is text else result.removesuffix(newline)


def _last(all_lines: list[str], first: int, column: int) -> int:
    """Return the number of the last line of a block: none of it, comments included, stands left of its column."""
    last = first
    for number in range(first + 1, len(all_lines)):
        line = all_lines[number]
        if line.strip() and _column(line) >= column:
            last = number
        elif line.strip() and not is_comment(line):
            break
    return last


def is_comment(line: str) -> bool:
    """Return whether a line is a comment and nothing else."""
    return line.lstrip().startswith("#")


def _column(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _without(
    all_lines: list[str], pool: CommentedMap, bottom: int, wanted: WantedSettings
) -> tuple[list[str], list[str], int]:
    """Return the pool's lines without what is exchanged, the overrides that stay, and where in the lines to write."""
    top, column = pool.lc.line, pool.lc.col
    gone, stay, first = set[int](), list[str](), None
    for name in ("unbind_delay", "stop_delay", "overrides"):
        if name not in pool:
            continue
        line = pool.lc.key(name)[0]
        end = _last(all_lines, line, column + 1)
        first = line if first is None else min(first, line)
        if name == "overrides" and pool[name]:
            stay = _staying(all_lines, pool, end, {override.key for override in wanted.overrides})
            gone |= set(range(line, end + 1))
        gone |= {number for number in range(line, end + 1) if not is_comment(all_lines[number])}
    gone |= {number for number in range(top, bottom + 1) if all_lines[number].strip().startswith(MARK)}
    kept = [number for number in range(top, bottom + 1) if number not in gone]
    after = _last(all_lines, pool.lc.key("name")[0], column + 1) + 1 if first is None else first
    return [all_lines[number] for number in kept], stay, sum(number < after for number in kept)


def _staying(all_lines: list[str], pool: CommentedMap, end: int, again: set[str]) -> list[str]:
    """Return the lines of the overrides without those that are ours and those of the keys that are written again."""
    overrides, line = pool["overrides"], pool.lc.key("overrides")[0]
    gone = {line}
    for key in overrides:
        start = overrides.lc.key(key)[0]
        if str(key) in again or MARK in all_lines[start]:
            first = _with_comments(all_lines, start) if str(key) in again else start
            gone |= set(range(first, _last(all_lines, start, overrides.lc.col + 1) + 1))
    return [all_lines[number] for number in range(line, end + 1) if number not in gone]


def _above(all_lines: list[str], pool: CommentedMap) -> dict[str, list[str]]:
    """Return the comment that stands above each override."""
    overrides = pool.get("overrides", {})
    starts = {str(key): overrides.lc.key(key)[0] for key in overrides}
    return {key: all_lines[_with_comments(all_lines, start) : start] for key, start in starts.items()}


def _with_comments(all_lines: list[str], start: int) -> int:
    """Return where the comment above a line begins."""
    while is_comment(all_lines[start - 1]) and _column(all_lines[start - 1]) == _column(all_lines[start]):
        start -= 1
    return start


def _pool_lines(wanted: WantedSettings, iso: bool) -> list[str]:
    return [
        *(f"{MARK} {line}" for line in wanted.summary),
        f"unbind_delay: {duration(wanted.unbind_delay, iso)}",
        f"stop_delay: {duration(wanted.stop_delay, iso)}",
    ]


def _setting_lines(one: WantedOverride, iso: bool) -> list[str]:
    delays = one.delays
    lines = [
        f"{quoted(one.key)}:  {one.comment}",
        f"  unbind_delay: {duration(delays.unbind_delay, iso)}",
        f"  stop_delay: {duration(delays.stop_delay, iso)}",
    ]
    if delays.warm:
        lines += ["  warm:", *(f"    - {window}" for window in delays.warm)]
    if delays.prewarm:
        lines += ["  prewarm:", *(f"    - [{_number(begin)}, {_number(end)}]" for begin, end in delays.prewarm)]
    return lines


def quoted(key: str) -> str:
    """Return a key as YAML in quotes, whatever is in it."""
    return (
        '"' + "".join(char if char.isprintable() and char not in '"\\' else f"\\U{ord(char):08x}" for char in key) + '"'
    )


def duration(seconds: float, iso: bool) -> str:
    """Return seconds (above 0) as a number, or as ISO 8601 text where they are whole and `iso` asks for it."""
    whole = round(seconds)
    if not iso or whole != seconds:
        return _number(seconds)
    days, rest = divmod(whole, 86_400)
    parts = [(rest // 3600, "H"), (rest % 3600 // 60, "M"), (rest % 60, "S")]
    time = "".join(f"{number}{unit}" for number, unit in parts if number)
    return "P" + (f"{days}D" if days else "") + (f"T{time}" if time else "")


def _number(seconds: float) -> str:
    """Return a number with all its digits. YAML 1.1 reads one with an exponent, as 1e-05, as text."""
    return f"{Decimal(str(float(seconds))):f}".removesuffix(".0")
