"""`osrdyne pipeline tables`: make all tables of a pool from its bronze one."""

from __future__ import annotations

import time
from pathlib import Path

import pyarrow.dataset as ds
import typer

from osrdyne_pipeline import tables
from osrdyne_pipeline.commands import options
from osrdyne_pipeline.commands.output import Steps, one_line_errors
from osrdyne_pipeline.commands.starting import spark
from osrdyne_pipeline.errors import LakeError
from osrdyne_pipeline.lake import Lake
from osrdyne_pipeline.session import DEFAULT_MEMORY
from osrdyne_runtime.console.output import print_json


@one_line_errors
def command(
    pool: options.Pool,
    lake: options.Lake = options.DEFAULT_LAKE,
    master: options.Master = None,
    memory: options.Memory = DEFAULT_MEMORY,
    json: options.Json = False,
) -> None:
    """Make silver and gold from bronze: requests, lives of groups, and an answer to each question.

    They are made anew as a whole; from the same events they are the same, row for row. Readers see the old tables or
    the new ones.
    """
    place = Lake(lake, pool)
    if not place.exists("bronze"):
        raise LakeError(f"there are no events of {pool} in {place.home}: osrdyne pipeline ingest brings them")
    begun = time.monotonic()
    with spark("tables", master=master, memory=memory) as session, place.only_writer("tables"), Steps() as steps:
        tables.build(session, place, steps)
    rows = {name: _rows(place.path(name)) for name in ("bronze", *tables.STEPS)}
    seconds = time.monotonic() - begun
    if json:
        print_json({"pool": pool, "lake": str(place.home), "rows": rows, "seconds": round(seconds, 1)})
        return
    for name, number in rows.items():
        typer.echo(f"{name:<18} {number:>12,}")
    typer.echo(f"tables of {pool} in {place.home}, {seconds:.1f} s")


def _rows(table: Path) -> int:
    """Return how many rows a table has, from what its files say of themselves."""
    return int(ds.dataset(table.resolve(), format="parquet").count_rows())
