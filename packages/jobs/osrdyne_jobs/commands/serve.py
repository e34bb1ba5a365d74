"""`osrdyne jobs serve`: the administration over HTTP, with its page and metrics."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from osrdyne_calls.closing import CLOSE_SECONDS
from osrdyne_client import Client
from osrdyne_jobs import processes, waiting
from osrdyne_jobs.commands import types
from osrdyne_jobs.commands.database import connectable
from osrdyne_jobs.commands.options import Broker, BrokerFile, DatabaseFile, Pool, Types, one_line_errors
from osrdyne_runtime import program
from osrdyne_runtime.console import broker_address, log_format
from osrdyne_runtime.console.output import CannotAsk
from osrdyne_runtime.settings import secrets

#: Variable that holds the token where no file is named.
TOKEN_VARIABLE = "OSRDYNE_JOBS_TOKEN"  # noqa: S105 - the name of a variable


@one_line_errors
def command(
    context: typer.Context,
    *,
    host: Annotated[str, typer.Option(help="Address to listen on; one that others reach needs a token.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(help="Port to listen on; 0 lets the system choose, and the log says which.")
    ] = 8043,
    token_file: Annotated[
        Path | None,
        typer.Option(
            envvar="OSRDYNE_JOBS_TOKEN_FILE",
            help=f"File that holds the token that a request must bring. Without it, the variable {TOKEN_VARIABLE} may "
            "hold the token. Without both, only requests to localhost are answered.",
        ),
    ] = None,
    types_at: Types = None,
    pool: Pool = None,
    broker_file: BrokerFile = None,
    broker: Broker = None,
    database_file: DatabaseFile = None,
    json: Annotated[bool, typer.Option("--json", help="Log one object a line.")] = False,
) -> None:
    """Serve the administration of jobs: an API, a page for people, and metrics. Ends at SIGTERM or SIGINT.

    With --types, jobs can be created. With a broker, they are cast at once; without one, or while it is away, redo
    casts them.
    """
    from osrdyne_jobs.http import serve

    log_format.configure(as_json=json)
    logging.getLogger("alembic").setLevel(logging.WARNING)
    secret = token(token_file)
    known = types.load(types_at) if types_at is not None else ()
    opening = _caster(context, pool, broker, broker_file)
    with connectable(database_file) as engine, opening as caster:
        program.run(
            waiting.until_signal(
                lambda stop: serve(engine, host=host, port=port, token=secret, types=known, client=caster, stop=stop)
            ),
            "osrdyne jobs serve",
            2 * CLOSE_SECONDS,  # the client's end has one of them
        )


def token(file: Path | None) -> str | Callable[[], str] | None:
    """Return what reads the token in a file, the token of the environment, or None where there is none."""
    if file is not None:
        return partial(secrets.in_file, file, "--token-file")
    if TOKEN_VARIABLE in os.environ:
        # An empty one is an error of `serve`, and does not mean that there is none.
        return os.environ[TOKEN_VARIABLE].strip()
    return None


def _caster(
    context: typer.Context, pool: str | None, broker: str | None, file: Path | None
) -> AbstractContextManager[processes.LateCaster | None]:
    """Return what casts to the pool, not yet open, where a broker is named."""
    if broker is None and file is None:
        return nullcontext()
    if pool is None:
        raise CannotAsk("a broker is named and no pool; give --pool NAME")

    def address() -> str:
        return broker_address.chosen(context, broker, file, variable="OSRDYNE_CLIENT_URI")

    address()  # an address that is missing is an error before anything is served
    return processes.LateCaster(lambda: Client(address, pool, slots=1, name="osrdyne jobs serve"))
