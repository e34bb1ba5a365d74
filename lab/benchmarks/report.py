"""The result as a table for a person, and as JSON for a program."""

from __future__ import annotations

import os
import platform
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

from rich.table import Table

from benchmarks.ratios import Row, Spread


def table(rows: list[Row]) -> Table:
    """Return the table: what was measured, ours, the peer's, and how they compare."""
    result = Table(
        title="one run, sides in turns: medians of the rounds, and of the rounds' ratios", title_justify="left"
    )
    result.add_column("measure", overflow="fold")
    for name in ("ours", "peer", "ratio"):
        result.add_column(name, justify="right", no_wrap=True)
    result.add_column("min..max", no_wrap=True)
    result.add_column("target", no_wrap=True)
    result.add_column("met", no_wrap=True)
    result.add_column("peer is", overflow="fold")
    for row in rows:
        result.add_row(
            row.measure,
            f"{number(row.ours.median)} {row.unit}",
            number(row.peer.median) if row.peer else "",
            f"{row.ratio.median:.2f}" if row.ratio else "",
            extremes(row),
            str(row.target) if row.target else "",
            "" if row.met is None else "yes" if row.met else "NO",
            row.peer_name,
        )
    return result


def number(value: float) -> str:
    """Write a number with three digits that mean something."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def extremes(row: Row) -> str:
    """Write how far the ratios lie apart; without a peer, the values themselves."""
    if row.ratio is not None:
        return f"{row.ratio.low:.2f}..{row.ratio.high:.2f}"
    if row.ours.low == row.ours.high:
        return ""
    return f"{number(row.ours.low)}..{number(row.ours.high)} {row.unit}"


def document(rows: list[Row], broker: str, failed: list[str]) -> dict[str, Any]:
    """Return everything that was measured, and where."""
    return {"machine": machine(broker), "rows": [_row(row) for row in rows], "failed": failed}


def machine(broker: str) -> dict[str, Any]:
    """Return what the figures depend on."""
    return {
        "cores": os.cpu_count(),
        "architecture": platform.machine(),
        "kernel": platform.release(),
        "load": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
        "rabbitmq": broker,
        "pika": version("pika"),
        "aio-pika": version("aio-pika"),
    }


def _row(row: Row) -> dict[str, Any]:
    return {
        "measure": row.measure,
        "unit": row.unit,
        "ours": _spread(row.ours),
        "peer": _spread(row.peer),
        "peer_name": row.peer_name or None,
        "ratio": _spread(row.ratio),
        "target": str(row.target) if row.target else None,
        "met": row.met,
    }


def _spread(spread: Spread | None) -> dict[str, float] | None:
    return None if spread is None else asdict(spread)
