"""`osrdyne pipeline report`: the tables of a pool as one HTML page."""

from __future__ import annotations

import dataclasses
import os
import secrets
import time
from pathlib import Path
from typing import Annotated

import typer

from osrdyne_pipeline.commands import options
from osrdyne_pipeline.commands.output import Steps, one_line_errors
from osrdyne_pipeline.commands.recommend import FILE
from osrdyne_pipeline.errors import LakeError
from osrdyne_pipeline.lake import Lake
from osrdyne_pipeline.report.content import ReportContent
from osrdyne_pipeline.report.evidence import evidence
from osrdyne_pipeline.report.facts import TABLES, gather
from osrdyne_pipeline.report.page import page
from osrdyne_pipeline.small.engine import SmallEngine
from osrdyne_protocol import foreign_json
from osrdyne_runtime.console.output import print_json


@one_line_errors
def command(
    pool: options.Pool,
    lake: options.Lake = options.DEFAULT_LAKE,
    output: Annotated[
        Path | None,
        typer.Option(
            callback=options.path, help="File to write; without, report.html of the pool in the lake.", dir_okay=False
        ),
    ] = None,
    price: options.Price = None,
    master: options.Master = None,
    memory: options.Memory = options.DEFAULT_MEMORY,
    json: options.Json = False,
) -> None:
    """Write one HTML page: demand, cold starts, latency, worker-hours, failures, forecast, and what to do next.

    The page needs no other file and no network. With a recommendation in the lake (`osrdyne pipeline recommend`) it
    shows what that would change.
    """
    place = Lake(lake, pool)
    if not place.exists("gold/demand"):
        raise LakeError(f"there are no tables of {pool} in {place.home}: osrdyne pipeline tables makes them")
    del master  # an option of all commands; small sums need no cluster
    with SmallEngine.open(memory) as engine, Steps() as steps:
        engine.show(place, *TABLES)
        found = gather(pool, engine.rows, now_ms=time.time_ns() // 1_000_000, progress=steps)
    file = output or place.home / "report.html"
    text = page(dataclasses.replace(with_recommendation(found, place.home / FILE), price=price))
    _replace(file, text)
    if json:
        totals = dataclasses.asdict(found.totals)
        print_json({"pool": pool, "report": str(file.absolute()), "bytes": len(text.encode()), **totals})
        return
    typer.echo(f"report of {pool}: {file.absolute()}")


def with_recommendation(found: ReportContent, file: Path) -> ReportContent:
    """Return the content with what a recommendation says; as it was where there is none. Raises `LakeError`."""
    try:
        document = foreign_json.read(file.read_bytes(), most=foreign_json.MOST_BYTES_OF_ENGINES)
        said = evidence(document)
        reasons = "; ".join(document["reasons"])
    except FileNotFoundError:
        return found
    except (ValueError, KeyError, TypeError) as error:
        raise LakeError(
            f"{file} is not a recommendation ({error!r}): osrdyne pipeline recommend writes it anew"
        ) from None
    return dataclasses.replace(
        found, evidence=said, no_evidence=f"Nothing is recommended: {reasons}." if reasons else found.no_evidence
    )


def _replace(file: Path, text: str) -> None:
    """Write a file in one step: whoever reads it has the old text or the new one."""
    file.parent.mkdir(parents=True, exist_ok=True)
    aside = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
    try:
        aside.write_text(text, encoding="utf-8")
        os.replace(aside, file)
    finally:
        aside.unlink(missing_ok=True)
