"""`osrdyne jobs create`: register a job, and cast it where a broker is named."""

from __future__ import annotations

import logging
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from osrdyne_client import Client
from osrdyne_jobs import messages
from osrdyne_jobs.client import CAST_TIMEOUT_SECONDS, JobClient, Registered
from osrdyne_jobs.commands import types
from osrdyne_jobs.commands.database import opened
from osrdyne_jobs.commands.options import Broker, BrokerFile, DatabaseFile, Json, Pool, Types, one_line_errors
from osrdyne_protocol.errors import OsrdyneError
from osrdyne_runtime.console import broker_address, log_format
from osrdyne_runtime.console.output import CannotAsk, print_json


@one_line_errors
def command(
    context: typer.Context,
    kind: Annotated[str, typer.Argument(metavar="TYPE", help="Type of the job, as `schemas` names it.")],
    resource: Annotated[str, typer.Argument(metavar="RESOURCE", help="What it works on: the key of a worker group.")],
    payload: Annotated[str, typer.Argument(metavar="PAYLOAD", help="What to do, as JSON; '-' reads standard input.")],
    *,
    types_at: Types = None,
    pool: Pool = None,
    broker_file: BrokerFile = None,
    broker: Broker = None,
    database_file: DatabaseFile = None,
    json: Json = False,
) -> None:
    """Register a job, once its type, resource and payload are found to be right.

    Where a broker is named, the job is cast to the pool and begins at once. Otherwise the process `osrdyne jobs redo`
    casts it some seconds later.
    """
    log_format.configure(as_json=json)
    logging.getLogger().setLevel(logging.ERROR)  # this command says itself what went wrong
    known = types.load(types_at)
    value = known.get(kind).decode(_payload(payload))
    client = _client(context, pool, broker, broker_file)
    with opened(database_file) as engine, JobClient(engine, known) as jobs:
        job = jobs.submit(kind, resource, value)
    problem = "no broker is named" if client is None else _cast(client, job)
    if json:
        print_json({"id": job.id, "type": kind, "resource": resource, "cast": problem is None, "not_cast": problem})
    elif problem is None:
        typer.echo(f"job {job.id} is registered, and cast")
    else:
        typer.echo(f"job {job.id} is registered; redo casts it ({problem})")


def _payload(given: str) -> str:
    if given != "-":
        return given
    try:
        return sys.stdin.buffer.read().decode()
    except UnicodeDecodeError:
        raise CannotAsk("the payload on standard input is not UTF-8 text") from None


def _client(context: typer.Context, pool: str | None, broker: str | None, file: Path | None) -> Client | None:
    """Return a client of the pool, not yet open, where a broker is named."""
    if broker is None and file is None:
        return None
    uri = broker_address.chosen(context, broker, file, variable="OSRDYNE_CLIENT_URI")
    if pool is None:
        raise CannotAsk("a broker is named and no pool; give --pool NAME")
    return Client(uri, pool, slots=1, connect_timeout=CAST_TIMEOUT_SECONDS, name="osrdyne jobs create")


def _cast(client: Client, job: Registered) -> str | None:
    """Cast a job; return why that did not work. The job is registered all the same."""
    until = time.monotonic() + CAST_TIMEOUT_SECONDS
    try:
        with client:
            left = max(0.1, until - time.monotonic())
            client.cast(job.resource, messages.encode(job.type, job.id), timeout=left)
    except OsrdyneError as error:
        return str(error)
    return None
