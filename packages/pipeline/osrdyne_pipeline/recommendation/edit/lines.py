"""Exchanges the lines of a pool's delays and overrides in a YAML text. Pure.

What is written begins with a comment that bears MARK, so that the next change finds and replaces it. Overrides that a
person wrote for other keys stay.
"""

from __future__ import annotations

import re

from ruamel.yaml.comments import CommentedMap

from osrdyne_pipeline.recommendation.outcome import Recommendation, Setting

MARK = "# recommended:"


def exchanged(text: str, pool: CommentedMap, recommendation: Recommendation) -> str:
    """Return the text with the recommendation in place of what `pool`, a table in it, says."""
    newline = "\r\n" if "\r\n" in text else "\n"
    all_lines = text.splitlines()
    column = pool.lc.col
    top, bottom = pool.lc.line, _last(all_lines, pool.lc.line, column)
    kept, overrides, at = _without(all_lines, pool, bottom, recommendation)
    indent = " " * column
    iso = any(isinstance(pool.get(name), str) for name in ("unbind_delay", "stop_delay"))
    written = [indent + pool_line for pool_line in _pool_lines(recommendation, iso)]
    if overrides or recommendation.overrides:
        written.append(f"{indent}overrides:")
        written += overrides
        for override in recommendation.overrides:
            written += [f"{indent}  {line}" for line in _setting_lines(override, iso)]
    body = kept[:at] + written + kept[at:]
    result = all_lines[:top] + body + all_lines[bottom + 1 :]
    return newline.join(result) + (newline if text.endswith("\n") else "")


def _last(all_lines: list[str], first: int, column: int) -> int:
    """Return the number of the last line of a block: none of it stands left of its column."""
    last = first
    for number in range(first + 1, len(all_lines)):
        line = all_lines[number]
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if _column(line) < column:
            break
        last = number
    return last


def _column(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _without(
    all_lines: list[str], pool: CommentedMap, bottom: int, recommendation: Recommendation
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
        gone |= set(range(line, end + 1))
        if name == "overrides" and isinstance(pool[name], CommentedMap):
            stay = _staying(all_lines, pool[name], end, {override.key for override in recommendation.overrides})
    gone |= {number for number in range(top, bottom + 1) if all_lines[number].strip().startswith(MARK)}
    kept = [number for number in range(top, bottom + 1) if number not in gone]
    after = pool.lc.key("name")[0] + 1 if first is None else first
    lines = [all_lines[number] for number in kept]
    at = sum(number < after for number in kept)
    if top in gone and lines:
        # The pool's first line has the dash of its list.
        lines, at = _with_dash(all_lines[top], lines, column), max(at, 1)
    return lines, stay, at


def _with_dash(line: str, lines: list[str], column: int) -> list[str]:
    first = next(number for number, line in enumerate(lines) if line.strip() and not line.lstrip().startswith("#"))
    moved = line[:column] + lines[first][column:]
    return [moved, *lines[:first], *lines[first + 1 :]]


def _staying(all_lines: list[str], overrides: CommentedMap, end: int, recommended: set[str]) -> list[str]:
    """Return the lines of overrides that are not ours, and are not to be."""
    starts = [(overrides.lc.key(key)[0], str(key)) for key in overrides]
    if not starts:
        return []
    lines: list[str] = []
    edges = [_with_comments(all_lines, start) for start, _ in starts] + [end + 1]
    for (start, key), begin, stop in zip(starts, edges, edges[1:], strict=False):
        if MARK not in all_lines[start] and key not in recommended:
            lines += all_lines[begin:stop]
    return lines


def _with_comments(all_lines: list[str], start: int) -> int:
    """Return where the comment above a line begins."""
    while all_lines[start - 1].lstrip().startswith("#") and _column(all_lines[start - 1]) == _column(all_lines[start]):
        start -= 1
    return start


def _pool_lines(recommendation: Recommendation, iso: bool) -> list[str]:
    return [
        *(f"{MARK} {line}" for line in _summary(recommendation)),
        f"unbind_delay: {_duration(recommendation.unbind_delay, iso)}",
        f"stop_delay: {_duration(recommendation.stop_delay, iso)}",
    ]


def _summary(recommendation: Recommendation) -> list[str]:
    found = recommendation.evidence
    if found is None:
        return []
    today, ours = found.result("today"), found.result(found.offered)
    before = f"{recommendation.unbind_before:g} + {recommendation.stop_before:g} s"
    return [
        f"before {before}, replayed on {found.weeks} {found.unit} not learnt from ({found.since} to {found.until}):",
        f"cold starts {today.cold} -> {ours.cold}, worker-hours {today.worker_hours:.0f} -> {ours.worker_hours:.0f}",
    ]


def _setting_lines(one: Setting, iso: bool) -> list[str]:
    numbers = (
        f"{one.requests} requests, cold {one.cold_before} -> {one.cold_after}, "
        f"hours {one.hours_before:.0f} -> {one.hours_after:.0f}"
    )
    lines = [
        f"{quoted(one.key)}:  {MARK} {numbers}",
        f"  unbind_delay: {_duration(one.unbind_delay, iso)}",
        f"  stop_delay: {_duration(one.stop_delay, iso)}",
    ]
    if one.warm:
        lines += ["  warm:", *(f"    - {window.text()}" for window in one.warm)]
    if one.prewarm:
        lines += ["  prewarm:", *(f"    - [{begin:g}, {end:g}]" for begin, end in one.prewarm)]
    return lines


def quoted(key: str) -> str:
    """Return a key as YAML in quotes, whatever is in it."""
    return (
        '"' + "".join(char if char.isprintable() and char not in '"\\' else f"\\U{ord(char):08x}" for char in key) + '"'
    )


def _duration(seconds: float, iso: bool) -> str:
    """Return seconds as a number, or as ISO 8601 text."""
    whole = round(seconds)
    if not iso or whole != seconds:
        return f"{seconds:g}" if whole != seconds else str(whole)
    days, rest = divmod(whole, 86_400)
    parts = [(rest // 3600, "H"), (rest % 3600 // 60, "M"), (rest % 60, "S")]
    time = "".join(f"{number}{unit}" for number, unit in parts if number)
    text = "P" + (f"{days}D" if days else "") + (f"T{time}" if time else "")
    assert re.fullmatch(r"P.+", text)
    return text
