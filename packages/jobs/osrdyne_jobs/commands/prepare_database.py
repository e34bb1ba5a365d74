"""`osrdyne jobs prepare-database`: make the database of a pool's jobs on a PostgreSQL server, with its users."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from osrdyne_jobs.commands.database import address
from osrdyne_jobs.commands.options import DatabaseFile, Json, one_line_errors
from osrdyne_runtime.console.output import print_json
from osrdyne_runtime.settings import secrets


@one_line_errors
def command(
    *,
    admin_file: Annotated[
        Path,
        typer.Option(help="File that holds the address of an administrator, in any database of the server."),
    ],
    owner_file: Annotated[
        Path,
        typer.Option(help="File that holds the address of the user who owns the database, for `osrdyne jobs migrate`."),
    ],
    database_file: DatabaseFile = None,
    json: Json = False,
) -> None:
    """Make the database that two addresses name, their users with these passwords, and their rights.

    The address of --database-file is that of clients, workers and redo, who may read and write rows, and no more. Where
    all is as it should be, nothing changes. A user's new password is set.
    """
    from osrdyne_jobs.database.preparation import prepare

    admin, owner = secrets.in_file(admin_file, "--admin-file"), secrets.in_file(owner_file, "--owner-file")
    changed = prepare(admin, owner, address(database_file))
    if json:
        print_json({"changed": changed})
    else:
        typer.echo("\n".join(changed) or "nothing to do")
