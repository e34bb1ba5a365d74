"""Values of files as the columns of RAW should have them: one that is not so is a problem of its row alone.

A file says what it likes: bytes in place of text, a text in place of a number. Spark would take the one for a key, and
the other would end the reading of a whole file. So all values are looked at here, before Spark has them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from osrdyne_pipeline.schemas import RAW
from osrdyne_pipeline.source import columns
from osrdyne_protocol import headers

#: What a file may say of an event; the rest of RAW is ours.
COLUMNS = pa.schema([field for field in RAW if field.name not in ("source", "offset", "problem", "raw")])


def of_batch(batch: pa.RecordBatch) -> dict[str, Any]:
    """Return the columns of a batch, where they are columns of an event, with `problem` and `raw` where there are any.

    A column of another type is read as the type that it should have: exactly, or not at all.
    """
    given: dict[str, Any] = {}
    problems: dict[int, str] = {}
    for name in batch.schema.names:
        given[name], wrong = _column(name, batch.column(name))
        problems = wrong | problems
    if problems:
        rows = range(batch.num_rows)
        given["problem"] = [problems.get(row) for row in rows]
        given["raw"] = [_shown(batch, row) if row in problems else None for row in rows]
    return given


def of_object(value: Mapping[str, Any]) -> tuple[dict[str, Any], str | None]:
    """Return the values of one event that JSON holds, and what is wrong with them."""
    given = {name: value.get(name) for name in COLUMNS.names}
    for field in COLUMNS:
        found = given[field.name]
        if field.type == pa.string():
            right = found is None or isinstance(found, str)
        else:
            if isinstance(found, float) and found.is_integer():
                given[field.name] = found = int(found)
            right = found is None or headers.integer(given, field.name) is not None
        if not right:
            return {}, f"unreadable: {field.name} is {str(found)[:40]!r}, not {field.type}"
    return given, None


def _column(name: str, array: pa.Array) -> tuple[pa.Array, dict[int, str]]:
    wanted = COLUMNS.field(name).type
    try:
        return _cast(array, wanted), {}
    except (pa.ArrowException, ValueError):
        pass
    values, problems = [], {}
    for row in range(len(array)):
        one = array.slice(row, 1)
        try:
            values.append(_cast(one, wanted)[0].as_py())
        except (pa.ArrowException, ValueError) as error:
            values.append(None)
            reason = "invalid_key" if name == "key" else f"unreadable: {name}"
            problems[row] = f"{reason}: {' '.join(str(error).split())[:200]}"
    return pa.array(values, wanted), problems


def _cast(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    cast = array if array.type == wanted else pc.cast(array, wanted)
    # That texts are UTF-8, which Arrow believes of every file.
    cast.validate(full=True)
    return cast


def _shown(batch: pa.RecordBatch, row: int) -> bytes:
    """Return the beginning of what a row says, for a person."""
    shown = []
    for name in batch.schema.names:
        one = batch.column(name).slice(row, 1)
        if pa.types.is_string(one.type) or pa.types.is_large_string(one.type):
            one = one.cast(pa.large_binary())
        value = one[0].as_py()
        if value is not None:
            text = value.decode(errors="backslashreplace") if isinstance(value, bytes) else str(value)
            shown.append(f"{name}={text[: columns.RAW_BYTES]}")
    return ", ".join(shown).encode(errors="backslashreplace")[: columns.RAW_BYTES]
