"""`osrdyne jobs redo`: give jobs their attempts again, or, without ids, run the process that finds what was missed."""

from __future__ import annotations

import logging
import os
import socket
from pathlib import Path
from typing import Annotated

import typer

from osrdyne_client import Client
from osrdyne_jobs import processes
from osrdyne_jobs.commands import changing
from osrdyne_jobs.commands.database import connectable
from osrdyne_jobs.commands.options import MOST_ID, Broker, BrokerFile, DatabaseFile, Pool, one_line_errors
from osrdyne_pool import settings_file
from osrdyne_pool.settings import RedoSettings
from osrdyne_runtime import log_lines
from osrdyne_runtime.console import broker_address, log_format
from osrdyne_runtime.console.output import CannotAsk

log = log_lines.logger(__name__)


@one_line_errors
def command(
    context: typer.Context,
    ids: Annotated[
        list[int] | None,
        typer.Argument(metavar="ID", min=1, max=MOST_ID, help="Failed, parked or cancelled jobs."),
    ] = None,
    *,
    settings: Annotated[
        Path | None, typer.Option(help="The daemon's settings file: the pool, and its table [pool.jobs.redo].")
    ] = None,
    pool: Pool = None,
    broker_file: BrokerFile = None,
    broker: Broker = None,
    database_file: DatabaseFile = None,
    ready_file: Annotated[
        Path | None,
        typer.Option(help="File that the process touches after each scan, for what looks whether it works."),
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="With ids, print one JSON document; without, log one object a line.")
    ] = False,
) -> None:
    """Do jobs again: those named, or all that were missed.

    With ids, each failed, parked or cancelled job gets all its attempts again. Without, this is the process that casts
    again what was missed, until SIGTERM or SIGINT. Run several on different machines: one leads, the others stand by.
    """
    if ids:
        if settings is not None:
            raise CannotAsk("--settings is for the process, which takes no ids; give one of them")
        changing.each(ids, changing.redo, database_file, as_json=json)
        return
    log_format.configure(as_json=json)
    logging.getLogger("alembic").setLevel(logging.WARNING)  # it reports each look at the tables
    name, redo = _settings(settings, pool)

    def address() -> str:
        return broker_address.chosen(context, broker, broker_file, variable="OSRDYNE_CLIENT_URI")

    if ready_file is not None and not os.access(ready_file.parent, os.W_OK):
        raise CannotAsk(f"--ready-file {ready_file}: its folder is missing, or may not be written")
    address()  # an address that is missing is an error before anything is waited for
    holder = f"{socket.gethostname()}-{os.getpid()}"
    with connectable(database_file) as engine:
        log.info("redo started", extra={"holder": holder, "pool": name})
        processes.redo(
            engine,
            lambda: Client(address, name, name=f"osrdyne jobs redo {holder}"),
            redo,
            name=holder,
            ready_file=ready_file,
        )
    log.info("redo ended", extra={"holder": holder})


def _settings(file: Path | None, pool: str | None) -> tuple[str, RedoSettings]:
    """Return the name of the pool, and the settings of redo."""
    chosen = None if file is None else settings_file.read_pool(file)
    name = pool or (chosen.name if chosen is not None else None)
    if name is None:
        raise CannotAsk("no pool is named; give --pool NAME, or the daemon's settings file by --settings")
    return name, chosen.redo() if chosen is not None else RedoSettings()
