"""The result of a run as a table, as JSON, and as one line. Pure."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any

from rich.table import Table

from faults.ledger import COUNTS, Row
from faults.run import Result
from faults.timing import p99


def merged(results: list[Result]) -> list[Row]:
    """Return one row a kind over all runs."""
    rows: dict[str, Row] = {}
    for result in results:
        for row in result.rows:
            rows.setdefault(row.kind, Row(row.kind)).add(row)
    return list(rows.values())


def total(rows: list[Row]) -> Row:
    """Return the sum of all rows, and the longest outage of any."""
    result = Row("total")
    for row in rows:
        result.add(row)
    return result


def table(results: list[Result]) -> Table:
    """Return the account by kind of fault."""
    rows = merged(results)
    found = Table(title="Requests by the first fault during which they were under way", caption=caption(results))
    found.add_column("fault", no_wrap=True)
    for name in (*COUNTS, "longest outage"):
        found.add_column(name.replace("_", " "), justify="right")
    for row in [*rows, total(rows)]:
        if row.kind == "total":
            found.add_section()
        found.add_row(row.kind, *(str(getattr(row, name)) for name in COUNTS), f"{row.outage:.1f} s")
    return found


def caption(results: list[Result]) -> str:
    """Return which runs these were, and which statuses the answers had."""
    runs = ", ".join(f"RabbitMQ {result.version} with seed {result.seed}" for result in results)
    statuses: Counter[str] = sum((Counter(result.statuses) for result in results), Counter())
    answers = ", ".join(f"{status} {count}" for status, count in statuses.most_common())
    late = max((result.late for result in results), default=0.0)
    beside = (
        f" Beside a hostile peer, p99 of warm keys was {late:.1f} times that of the calm before it." if late else ""
    )
    unconfirmed = sum(result.unconfirmed for result in results)
    return f"{runs}. Answers: {answers}. Not confirmed, so not counted: {unconfirmed}.{beside}{_sprays(results)}"


def _sprays(results: list[Result]) -> str:
    took: dict[str, list[float]] = {}
    for result in results:
        for what, some in result.beside_sprays.items():
            took.setdefault(what, []).extend(some)
    found = "; ".join(f"{what} {p99(some):.0f} ms ({len(some)} requests)" for what, some in took.items())
    return f" Beside sprays of keys, p99 of {found}." if found else ""


def last_line(results: list[Result]) -> str:
    """Return the line that ends every run, for people and programs."""
    row = total(merged(results))
    return (
        f"faults: injected={row.injected} requests={row.requests} answered={row.answered} "
        f"poisoned={row.poisoned} lost_by_broker={row.lost_by_broker} lost={row.lost} duplicates={row.duplicates} "
        f"redelivered={row.redelivered}"
    )


def to_json(result: Result) -> dict[str, Any]:
    return dataclasses.asdict(result)


def from_json(document: dict[str, Any]) -> Result:
    """Return the result that `to_json` was given."""
    return Result(**{**document, "rows": [Row(**row) for row in document["rows"]]})


def is_good(results: list[Result]) -> bool:
    """Say whether nothing was lost, and everything was injected that should have been."""
    return not any(result.troubles for result in results)
