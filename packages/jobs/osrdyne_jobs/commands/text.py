"""Jobs as a table, a page or lines for a person, without control characters from their contents."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from typing import Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from osrdyne_runtime.console.output import printable, shown

_NOTHING = "-"
#: Width in characters where the output is not a terminal: nothing is cut, because a program may read it.
_NO_TERMINAL_WIDTH = 4000
_COLUMNS = ("id", "type", "resource", "state", "attempts", "registered_at", "reason")
_LINES = (
    "id",
    "type",
    "resource",
    "state",
    "coalesce",
    "registered_at",
    "begin_after",
    "due_at",
    "finished_at",
    "reason",
)


def print_jobs(jobs: Iterable[Mapping[str, Any]]) -> None:
    """Print a row a job; the jobs are documents of `documents.of_job`."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in _COLUMNS:
        table.add_column(_title(name), overflow="fold", justify="right" if name in ("id", "attempts") else "left")
    for job in jobs:
        cells = dict(job) | {"attempts": _attempts(job), "resource": shown(job["resource"])}
        table.add_row(*(Text(_cell(cells[name])) for name in _COLUMNS))
    width = None if sys.stdout.isatty() else _NO_TERMINAL_WIDTH
    Console(width=width, highlight=False).print(table)


def print_job(job: Mapping[str, Any]) -> None:
    """Print all there is about a job: a document with its `runs`."""
    for name in _LINES:
        line(_title(name), shown(job[name]) if name == "resource" else job[name])
    line("attempts", _attempts(job))
    if job["cancel"]:
        line("cancel", "it was cancelled while it ran")
    for run in job["runs"]:
        ended = f"{run['ended_at']} {run['outcome']}" if run["ended_at"] else "runs"
        because = f": {run['reason']}" if run["reason"] else ""
        line("run", f"{run['token']} by {run['worker']}, {run['began_at']} to {ended}{because}")
        for raised in (run["traceback"] or "").splitlines():
            typer.echo(f"    {printable(raised)}")
    line("payload", json.dumps(job["payload"], ensure_ascii=False))


def line(name: str, value: object) -> None:
    """Print one line with a name."""
    typer.echo(f"{name}: {_cell(value)}")


def _title(name: str) -> str:
    return name.removesuffix("_at").replace("_", " ")


def _attempts(job: Mapping[str, Any]) -> str:
    return f"{job['attempts']} of {job['max_attempts']}"


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return _NOTHING if value is None else printable(value)
