"""Poison entries as a table, as a page, or as JSON, without control characters from their contents."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import typer
from rich.table import Table
from rich.text import Text

from osrdyne.commands.poison.entry import Entry
from osrdyne.commands.poison.inventory import PoisonOutcome
from osrdyne.commands.status_table import console
from osrdyne_amqp import Message
from osrdyne_protocol import headers
from osrdyne_runtime.console.output import complain, print_json, printable, shown

#: Most characters of a body that are shown to a person; `--json` has all of it.
_SHOWN_CHARACTERS = 4000
_NOWHERE = "-"


def document(entry: Entry) -> dict[str, Any]:
    """Return an entry as a JSON-ready document."""
    values = asdict(entry)
    values["time"] = _moment(values.pop("time_ms"))
    values["request_id"] = values.pop("correlation_id")
    values["attempts"] = [
        {"worker_id": attempt.worker_id, "time": _moment(attempt.time_ms)} for attempt in entry.attempts
    ]
    return values


def whole_document(entry: Entry, message: Message) -> dict[str, Any]:
    """Return an entry with its headers and its body: as text, or as base64 where it is none."""
    values = {**document(entry), "reply_to": message.properties.reply_to, "headers": message.properties.headers or {}}
    try:
        return {**values, "body": message.body.decode()}
    except UnicodeDecodeError:
        return {**values, "body_base64": base64.b64encode(message.body).decode()}


def print_table(entries: Iterable[Entry]) -> None:
    """Print a row an entry, oldest first."""
    rows = list(entries)
    if not rows:
        typer.echo("the poison inventory is empty")
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("id", "kept at", "key", "reason", "deliveries", "bytes", "request id"):
        table.add_column(name, overflow="fold", justify="right" if name in ("deliveries", "bytes") else "left")
    for row in rows:
        cells = (
            row.id,
            _moment(row.time_ms),
            None if row.key is None else shown(row.key),
            row.reason,
            row.deliveries,
            row.size,
            row.correlation_id,
        )
        table.add_row(*(Text(_NOWHERE if cell is None else printable(cell)) for cell in cells))
    console().print(table)


def print_whole(entry: Entry, message: Message) -> None:
    """Print all there is about an entry."""
    values = document(entry)
    for name in ("id", "time", "reason", "detail", "key", "queue", "deliveries", "request_id"):
        _line(name.replace("_", " "), values[name])
    _line("reply to", message.properties.reply_to)
    for attempt in values["attempts"]:
        _line("had it", f"{attempt['time']} {attempt['worker_id']}")
    given = message.properties.headers or {}
    deaths = given.get(headers.X_DEATH)
    for death in deaths if isinstance(deaths, list) else ():
        _line("death", _death(death))
    for name, value in sorted(given.items(), key=lambda header: str(header[0])):
        if name not in headers.POISON and name != headers.X_DEATH:
            _line(f"header {name}", value)
    _line("body", f"{len(message.body)} bytes")
    _print_body(message.body)


def print_outcomes(outcomes: list[PoisonOutcome], missing: list[str], done: str, *, as_json: bool) -> None:
    """Print the outcome of each entry; those that stay go to standard error with the reason."""
    removed = [outcome.entry for outcome in outcomes if outcome.kept_because is None]
    kept = [outcome for outcome in outcomes if outcome.kept_because is not None]
    if as_json:
        failed = [{"id": outcome.entry.id, "problem": outcome.kept_because} for outcome in kept]
        print_json({done: [document(entry) for entry in removed], "failed": failed, "not_found": missing})
    else:
        for entry in removed:
            key = _NOWHERE if entry.key is None else shown(entry.key)
            typer.echo(printable(f"{done} {entry.id} (key {key}, {entry.reason})"))
        if not outcomes and not missing:
            typer.echo("nothing there")
    for outcome in kept:
        complain(f"{outcome.entry.id} stays: {outcome.kept_because}")
    for entry_id in missing:
        complain(f"no entry {entry_id}: replayed or buried already?")


def _print_body(body: bytes) -> None:
    try:
        text = body.decode()
    except UnicodeDecodeError:
        typer.echo(f"  {body[: _SHOWN_CHARACTERS // 4].hex(' ', 4)}")
        cut = len(body) > _SHOWN_CHARACTERS // 4
    else:
        for line in text[:_SHOWN_CHARACTERS].split("\n"):
            typer.echo(f"  {printable(line)}")
        cut = len(text) > _SHOWN_CHARACTERS
    if cut:
        typer.echo("  ... (all of it: --json)")


def _line(name: str, value: object) -> None:
    typer.echo(printable(f"{name}: {_NOWHERE if value is None else value}"))


def _death(death: object) -> str:
    if not isinstance(death, dict):
        return str(death)
    return f"{death.get('reason')} in {death.get('queue')} at {death.get('time')}, {death.get('count')} times"


def _moment(time_ms: int | None) -> str | None:
    if time_ms is None:
        return None
    try:
        return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds")
    except (OverflowError, ValueError, OSError):
        return str(time_ms)
