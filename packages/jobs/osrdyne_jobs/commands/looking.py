"""`osrdyne jobs list`, `show` and `schemas`: jobs, what became of one, and the types that a program declares."""

from __future__ import annotations

import json as as_json
from typing import Annotated, Any

import typer

from osrdyne_jobs import documents, states
from osrdyne_jobs.commands import text, types
from osrdyne_jobs.commands.database import opened
from osrdyne_jobs.commands.options import MOST_ID, DatabaseFile, Id, Json, Types, one_line_errors
from osrdyne_jobs.database.engines import reading
from osrdyne_jobs.store import administration
from osrdyne_runtime.console.output import CannotAsk, print_json, seconds_of


@one_line_errors
def list_(
    *,
    kind: Annotated[str | None, typer.Option("--type", help="Only jobs of this type.")] = None,
    resource: Annotated[str | None, typer.Option(help="Only jobs of this resource.")] = None,
    state: Annotated[str | None, typer.Option(help=f"Only jobs in this state: {', '.join(states.STATES)}.")] = None,
    older_than: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Only jobs registered so long ago: seconds (90) or ISO 8601 (PT1M30S)."),
    ] = None,
    after: Annotated[int, typer.Option(metavar="ID", min=0, max=MOST_ID, help="Only jobs behind this id.")] = 0,
    most: Annotated[int, typer.Option(min=1, max=10_000, help="Most jobs of one page.")] = 100,
    history: Annotated[
        bool, typer.Option("--history", help="Those that ended some time ago, instead of the present ones.")
    ] = False,
    database_file: DatabaseFile = None,
    json: Json = False,
) -> None:
    """List jobs in the order of their ids, a page at a time.

    Where there are more, the last line says how to get them. With --json, `next` is the id for --after, or null.
    """
    filters: dict[str, Any] = {
        "type": _text(kind, "--type"),
        "resource": _text(resource, "--resource"),
        "state": _state(state),
        "older_than": None if older_than is None else seconds_of(older_than, "--older-than"),
    }
    with opened(database_file) as engine, reading(engine) as connection:
        found = administration.listed(connection, **filters, after=after, most=most + 1, history=history)
    page = [documents.of_job(job) for job in found[:most]]
    following = found[most - 1].id if len(found) > most else None
    if json:
        print_json({"jobs": page, "next": following})
        return
    if page:
        text.print_jobs(page)
    else:
        typer.echo("no jobs")
    if following is not None:
        typer.echo(f"there are more: --after {following}")


@one_line_errors
def show(id: Id, *, database_file: DatabaseFile = None, json: Json = False) -> None:  # noqa: A002 - the argument's name
    """Show one job: its state, its payload, and each of its runs. Jobs of the history are found, too."""
    with opened(database_file) as engine, reading(engine) as connection:
        job, runs = administration.get(connection, id), administration.attempts(connection, id)
    document = documents.of_job(job) | {"runs": [documents.of_run(run) for run in runs]}
    if json:
        print_json(document)
    else:
        text.print_job(document)


def _state(given: str | None) -> str | None:
    if given is not None and given not in states.STATES:
        raise CannotAsk(f"--state {given!r} is not a state; there are {', '.join(states.STATES)}")
    return given


def _text(given: str | None, option: str) -> str | None:
    """Refuse bytes of the command line that are not text: no database finds them."""
    if given is not None and not given.isascii():
        try:
            given.encode()
        except UnicodeEncodeError:
            raise CannotAsk(f"{option} {given!r} is not UTF-8 text") from None
    return given


@one_line_errors
def schemas(*, types_at: Types = None, json: Json = False) -> None:
    """Show the types of jobs: name, coalescing, attempts, and the JSON schema of the payload. Asks no database."""
    found = [documents.of_type(declared) for declared in types.load(types_at)]
    if json:
        print_json({"types": found})
        return
    for declared in found:
        for name, value in declared.items():
            text.line(name.replace("_", " "), as_json.dumps(value) if name == "payload" else value)
    if not found:
        typer.echo("no types")
