"""Options that several commands take, and which errors of theirs are one line, with which exit status."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from osrdyne_jobs.errors import InvalidJob, UnknownJob, WrongState
from osrdyne_protocol.errors import OsrdyneError
from osrdyne_runtime.console.output import CANNOT, NO, failing_clearly

#: Turns known errors of a command into one line and exit status 1 or 2.
one_line_errors = failing_clearly({InvalidJob: NO, UnknownJob: NO, WrongState: NO, OsrdyneError: CANNOT})

#: Largest id of a job on both databases.
MOST_ID = 2**63 - 1

DatabaseFile = Annotated[
    Path | None,
    typer.Option(
        "--database-file",
        envvar="OSRDYNE_JOBS_DATABASE_FILE",
        help="File that holds the database's address, postgresql://user:password@host/database or "
        "sqlite:////absolute/path. Without it, the variable OSRDYNE_JOBS_DATABASE holds the address.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document, also for an error.")]
Types = Annotated[
    str | None,
    typer.Option(
        "--types",
        envvar="OSRDYNE_JOBS_TYPES",
        metavar="MODULE:NAME",
        help="Where the types of jobs are: an iterable of JobType, or a mapping with such keys. The module may be in "
        "the directory where the command runs.",
    ),
]
Pool = Annotated[str | None, typer.Option("--pool", envvar="OSRDYNE_CLIENT_POOL", help="Name of the pool.")]
BrokerFile = Annotated[
    Path | None,
    typer.Option(
        "--broker-file", envvar="OSRDYNE_CLIENT_URI_FILE", help="File that holds the broker's address; best choice."
    ),
]
Broker = Annotated[
    str | None,
    typer.Option(
        "--broker",
        envvar="OSRDYNE_CLIENT_URI",
        metavar="URI",
        help="Broker's address, amqp://user:password@host:5672/vhost. On the command line its password can be seen in "
        "the list of processes: prefer --broker-file or the environment.",
    ),
]
Id = Annotated[int, typer.Argument(metavar="ID", min=1, max=MOST_ID, help="A job, as `list` names it.")]
Ids = Annotated[list[int], typer.Argument(metavar="ID", min=1, max=MOST_ID, help="Jobs, as `list` names them.")]
