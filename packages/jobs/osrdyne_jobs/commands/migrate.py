"""`osrdyne jobs migrate`: make the tables, or bring them to this version."""

from __future__ import annotations

import typer

from osrdyne_jobs.commands.database import connectable
from osrdyne_jobs.commands.options import DatabaseFile, Json, one_line_errors
from osrdyne_jobs.database import engines as tables
from osrdyne_runtime.console.output import print_json


@one_line_errors
def command(*, database_file: DatabaseFile = None, json: Json = False) -> None:
    """Make the tables of jobs, or bring them to this version. Does nothing where they are. It needs the right to."""
    with connectable(database_file, may_make=True) as engine:
        before = tables.present_version(engine)
        tables.migrate(engine)
        where = tables.place(engine)
    if json:
        print_json({"database": where, "version": tables.newest_version(), "before": before})
    else:
        typer.echo(f"{where} has the tables of version {tables.newest_version()}")
