"""`osrdyne pipeline tables`: make all tables of a pool from its bronze one."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import typer

from osrdyne_pipeline.commands import options
from osrdyne_pipeline.commands.output import Steps, one_line_errors
from osrdyne_pipeline.commands.starting import AUTO, started
from osrdyne_pipeline.errors import LakeError
from osrdyne_pipeline.small.engine import QUERIES
from osrdyne_pipeline.store.opening import lake_at
from osrdyne_pipeline.tables import build
from osrdyne_runtime.console.output import print_json

if TYPE_CHECKING:
    from osrdyne_pipeline.store.opening import AnyLake


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

    Of requests and lives, a run makes again the days that changed. From the same events all tables are the same, row
    for row. Readers see the old tables or the new ones.
    """
    begun = time.monotonic()
    place = lake_at(lake, pool)
    rows = make(place, engine=engine, master=master, memory=memory)
    seconds = time.monotonic() - begun
    if json:
        print_json({"pool": pool, "lake": place.where, "rows": rows, "seconds": round(seconds, 1)})
        return
    for name, number in rows.items():
        typer.echo(f"{name:<18} {number:>12,}")
    typer.echo(f"tables of {pool} in {place.where}, {seconds:.1f} s")


def make(place: AnyLake, *, engine: str, master: str | None, memory: str) -> dict[str, int]:
    """Make all tables again, and return how many rows each has. Raises `PipelineError`."""
    if not place.exists("bronze"):
        raise LakeError(f"there are no events of {place.pool} in {place.where}: osrdyne pipeline ingest brings them")
    place.check_writable()
    with (
        started("tables", place, engine=engine, master=master, memory=memory) as session,
        place.only_writer("tables"),
        Steps() as steps,
    ):
        build(session, place, steps)
    return {name: place.rows(name) for name in ("bronze", *QUERIES)}
