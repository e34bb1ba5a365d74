"""Lists of calls in files: CSV or JSON lines, gzipped or not, read row by row.

A row has `time` (ISO 8601 with its offset from UTC, or seconds since the Unix epoch), `key`, and if wanted `duration`
(seconds, or ISO 8601 as `PT1.5S`; nothing where it is not known). Rows are in the order of their time.
"""

from __future__ import annotations

import csv
import gzip
import io
import math
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from osrdyne.commands.replay.simulated_pool import PastCall
from osrdyne_protocol import foreign_json
from osrdyne_protocol.durations import parse_seconds
from osrdyne_protocol.errors import InvalidKey
from osrdyne_protocol.keys import decode
from osrdyne_runtime.console.output import CannotAsk

_FIELDS = ("time", "key", "duration")
#: The end of the year 9999, in seconds since the epoch.
_LATEST_SECONDS = 253_402_300_800


@contextmanager
def opened(path: Path) -> Iterator[tuple[Iterator[PastCall], Callable[[], float]]]:
    """Yield a file's calls, and a function that returns the share read so far. Raises `CannotAsk`, with the line."""
    name = path.name.removesuffix(".gz")
    if not name.endswith((".csv", ".jsonl")):
        raise CannotAsk(f"--calls: {path} is neither .csv nor .jsonl (nor one of these with .gz); rename or convert it")
    try:
        with path.open("rb") as raw:
            size = max(1, path.stat().st_size)
            plain = gzip.GzipFile(fileobj=raw) if path.name.endswith(".gz") else raw
            with io.TextIOWrapper(plain, "utf-8-sig", newline="") as text:
                rows = _csv(text, path) if name.endswith(".csv") else _json_lines(text, path)
                yield _calls(rows, path), lambda: raw.tell() / size
    except OSError as error:
        raise CannotAsk(f"{path}: cannot be read: {error.strerror or error}") from error


def _calls(rows: Iterator[tuple[int, Any, Any, Any]], path: Path) -> Iterator[PastCall]:
    """Check each row, and turn it into a call."""
    line, latest = 0, 0
    try:
        for number, time, key, duration in rows:
            line = number
            call = PastCall(_time_ms(time), _key(key), _duration_ms(duration))
            if call.time_ms < latest:
                raise ValueError("is earlier than the call before it; sort the file by time")
            latest = call.time_ms
            yield call
    except ValueError as error:
        if isinstance(error, UnicodeDecodeError):
            raise CannotAsk(f"{path}: after line {line}: is not UTF-8 text; convert it") from error
        raise CannotAsk(f"{path}: line {line}: {error}") from error
    except (EOFError, gzip.BadGzipFile, zlib.error, csv.Error) as error:
        raise CannotAsk(f"{path}: after line {line}: {error}; the file is damaged or cut off") from error


def _csv(text: io.TextIOWrapper, path: Path) -> Iterator[tuple[int, Any, Any, Any]]:
    reader = csv.reader(text, strict=True)
    header = next(reader, [])
    unknown = [column for column in header if column not in _FIELDS]
    if unknown or "time" not in header or "key" not in header or len(set(header)) < len(header):
        raise CannotAsk(f"{path}: line 1: is {','.join(header)!r}; begin with a line of names: time,key[,duration]")
    time, key = header.index("time"), header.index("key")
    duration = header.index("duration") if "duration" in header else None
    for row in reader:
        if len(row) != len(header):
            raise CannotAsk(f"{path}: line {reader.line_num}: has {len(row)} fields, not {len(header)}")
        yield reader.line_num, row[time], row[key], None if duration is None else row[duration]


def _json_lines(text: io.TextIOWrapper, path: Path) -> Iterator[tuple[int, Any, Any, Any]]:
    for number, line in enumerate(text, 1):
        try:
            row = foreign_json.read(line)
        except foreign_json.UnreadableJson as error:
            raise CannotAsk(f"{path}: line {number}: cannot be read: {error}; give one object a line") from error
        if not isinstance(row, dict) or not {"time", "key"} <= row.keys() <= set(_FIELDS):
            raise CannotAsk(f"{path}: line {number}: is not an object with time, key and if wanted duration")
        yield number, row["time"], row["key"], row.get("duration")


def _time_ms(time: object) -> int:
    expected = "give ISO 8601 with an offset (2013-01-01T10:15:00Z) or seconds since 1970"
    try:
        seconds = float(time) if not isinstance(time, bool) else math.nan  # type: ignore[arg-type]
    except (TypeError, ValueError):
        try:
            moment = datetime.fromisoformat(time)  # type: ignore[arg-type]
        except (TypeError, ValueError):
            moment = None
        if moment is None or moment.tzinfo is None:
            raise ValueError(f"time: {time!r} is not a moment; {expected}") from None
        seconds = moment.timestamp()
    except OverflowError:
        seconds = math.inf
    if not 0 <= seconds < _LATEST_SECONDS:
        raise ValueError(f"time: {time!r} is not a moment from 1970 to 9999; {expected}")
    return round(seconds * 1000)


def _key(key: object) -> str:
    if not isinstance(key, str):
        raise ValueError(f"key: {key!r} is not text")
    try:
        return decode(key)
    except InvalidKey as error:
        raise ValueError(str(error)) from error


def _duration_ms(duration: object) -> int | None:
    if duration is None or duration == "":
        return None
    try:
        value: object = float(duration) if isinstance(duration, str) and duration[:1] != "P" else duration
        return round(parse_seconds(value) * 1000)
    except ValueError as error:
        raise ValueError(f"duration: {error}") from error
