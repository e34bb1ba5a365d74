"""`osrdyne jobs restored`: have a database that was restored give no id again."""

from __future__ import annotations

import typer

from osrdyne_jobs.commands.database import connectable
from osrdyne_jobs.commands.options import DatabaseFile, Json, one_line_errors
from osrdyne_jobs.database import restoring
from osrdyne_jobs.database.engines import place
from osrdyne_runtime.console.output import print_json


@one_line_errors
def command(*, database_file: DatabaseFile = None, json: Json = False) -> None:
    """Say that the database was restored from a back-up: new jobs and runs get ids that none has had.

    Fencing tokens are larger than all before. The tables are brought to this version. It needs the right to alter them.
    """
    with connectable(database_file) as engine:
        raised = restoring.raise_ids(engine)
        where = place(engine)
    if json:
        print_json({"database": where, "ids_above": raised})
    else:
        typer.echo(f"{where} gives ids above {min(raised.values())} from now on")
