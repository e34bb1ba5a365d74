"""`osrdyne pipeline tables`: make all tables of a pool from its bronze one."""

from __future__ import annotations

import time

import typer

from osrdyne_pipeline.commands import options
from osrdyne_pipeline.commands.output import Steps, one_line_errors
from osrdyne_pipeline.commands.starting import AUTO, started
from osrdyne_pipeline.errors import LakeError
from osrdyne_pipeline.small.engine import QUERIES
from osrdyne_pipeline.store.opening import lake_at
from osrdyne_pipeline.tables import build
from osrdyne_runtime.console.output import print_json


@one_line_errors
def command(
    pool: options.Pool,
    lake: options.Lake = options.DEFAULT_LAKE,
    engine: options.Engine = AUTO,
    master: options.Master = None,
    memory: options.Memory = options.DEFAULT_MEMORY,
    json: options.Json = False,
) -> None:
    """Make silver and gold from bronze: requests, lives of groups, and an answer to each question.

    They are made anew as a whole; from the same events they are the same, row for row. Readers see the old tables or
    the new ones.
    """
    place = lake_at(lake, pool)
    if not place.exists("bronze"):
        raise LakeError(f"there are no events of {pool} in {place.where}: osrdyne pipeline ingest brings them")
    place.check_writable()
    begun = time.monotonic()
    with (
        started("tables", place, engine=engine, master=master, memory=memory) as session,
        place.only_writer("tables"),
        Steps() as steps,
    ):
        build(session, place, steps)
    rows = {name: place.rows(name) for name in ("bronze", *QUERIES)}
    seconds = time.monotonic() - begun
    if json:
        print_json({"pool": pool, "lake": place.where, "rows": rows, "seconds": round(seconds, 1)})
        return
    for name, number in rows.items():
        typer.echo(f"{name:<18} {number:>12,}")
    typer.echo(f"tables of {pool} in {place.where}, {seconds:.1f} s")
