"""`osrdyne jobs cancel`, `delete` and `redo ID...`: change single jobs, each in a transaction of its own."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import typer
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

from osrdyne_jobs import states
from osrdyne_jobs.commands.database import opened
from osrdyne_jobs.commands.options import DatabaseFile, Ids, Json, one_line_errors
from osrdyne_jobs.database.addresses import advice
from osrdyne_jobs.database.engines import place, reason, writing
from osrdyne_jobs.errors import UnknownJob, WrongState
from osrdyne_jobs.store import administration
from osrdyne_runtime.console.output import CANNOT, NO, complain, print_json

#: Changes one job and returns its state; raises UnknownJob and WrongState.
Change = Callable[[Connection, int], str]
#: What a person reads of each state that a change ends in.
_SAID = {
    states.REGISTERED: "registered again; redo casts it",
    states.RUNNING: "still running; its handler hears that it should end",
    states.CANCELLED: "cancelled",
    "deleted": "deleted",
}


@one_line_errors
def cancel(ids: Ids, *, database_file: DatabaseFile = None, json: Json = False) -> None:
    """Cancel jobs. One that waits is cancelled at once; the handler of one that runs hears of it."""

    def change(connection: Connection, number: int) -> str:
        return states.CANCELLED if administration.cancel(connection, number) else states.RUNNING

    each(ids, change, database_file, as_json=json)


@one_line_errors
def delete(ids: Ids, *, database_file: DatabaseFile = None, json: Json = False) -> None:
    """Delete jobs with their runs, also jobs of the history. One that runs is refused: cancel it first."""

    def change(connection: Connection, number: int) -> str:
        administration.delete_job(connection, number)
        return "deleted"

    each(ids, change, database_file, as_json=json)


def redo(connection: Connection, number: int) -> str:
    """Give a job its attempts again."""
    administration.redo(connection, number)
    return states.REGISTERED


def each(ids: Iterable[int], change: Change, database_file: Path | None, *, as_json: bool) -> None:
    """Change jobs one by one and print what became of each. Ends the command with status 1 or 2 where one was not."""
    with opened(database_file) as engine:
        outcomes, status = _changed(engine, dict.fromkeys(ids), change)
    if as_json:
        print_json({"jobs": outcomes})
    for outcome in outcomes:
        if "error" in outcome:
            complain(outcome["error"])
        elif not as_json:
            typer.echo(f"job {outcome['id']}: {_SAID[outcome['state']]}")
    if status:
        sys.exit(status)


def _changed(engine: Engine, ids: Iterable[int], change: Change) -> tuple[list[dict[str, Any]], int]:
    """Return what became of each job, and the exit status. An outage of the database ends it: later jobs stay."""
    outcomes: list[dict[str, Any]] = []
    status = 0
    for number in ids:
        try:
            with writing(engine) as connection:
                state = change(connection, number)
            outcomes.append({"id": number, "state": state})
        except (UnknownJob, WrongState) as error:
            outcomes.append({"id": number, "error": str(error)})
            status = NO
        except SQLAlchemyError as error:
            said = reason(error)
            why = f"job {number}: database {place(engine)}: {said}{advice(said)}; later ones were not tried"
            outcomes.append({"id": number, "error": why})
            return outcomes, CANNOT
    return outcomes, status
