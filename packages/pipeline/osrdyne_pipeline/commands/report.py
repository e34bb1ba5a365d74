"""`osrdyne pipeline report`: the tables of a pool as one HTML page."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from osrdyne_pipeline.commands import options
from osrdyne_pipeline.commands.output import Steps, one_line_errors
from osrdyne_pipeline.commands.recommend import FILE
from osrdyne_pipeline.errors import LakeError
from osrdyne_pipeline.lake import replace_file
from osrdyne_pipeline.report.content import ReportContent
from osrdyne_pipeline.report.evidence import evidence, review
from osrdyne_pipeline.report.facts import TABLES, gather
from osrdyne_pipeline.report.page import page
from osrdyne_pipeline.small.engine import SmallEngine
from osrdyne_pipeline.store.opening import lake_at
from osrdyne_protocol import foreign_json
from osrdyne_runtime.console.output import CannotAsk, print_json

if TYPE_CHECKING:
    from osrdyne_pipeline.store.opening import AnyLake

#: In the folder of the pool, where no other place is given.
PAGE = "report.html"
#: What the page of a key says of advice.
OF_THE_POOL = "Advice on delays is on the page of the whole pool."
Output = Annotated[
    Path | None,
    typer.Option(
        callback=options.path, help="File to write; without, report.html of the pool in the lake.", dir_okay=False
    ),
]


@one_line_errors
def command(
    pool: options.Pool,
    lake: options.Lake = options.DEFAULT_LAKE,
    output: Output = None,
    key: Annotated[
        str | None, typer.Option(metavar="KEY", help="Write a page of this key alone; needs --output.")
    ] = None,
    price: options.Price = None,
    link: options.Links = None,
    master: options.Master = None,
    memory: options.Memory = options.DEFAULT_MEMORY,
    json: options.Json = False,
) -> None:
    """Write one HTML page: demand, cold starts, latency, worker-hours, failures, forecast, and what to do next.

    The page needs no other file and no network. With a recommendation in the lake (`osrdyne pipeline recommend`) it
    shows what that would change.
    """
    del master  # an option of all commands; small sums need no cluster
    written = write(lake_at(lake, pool), output=output, price=price, memory=memory, key=key, links=link or ())
    if json:
        print_json({"pool": pool, **written})
        return
    typer.echo(f"report of {pool}: {written['report']}")


def write(
    place: AnyLake,
    *,
    output: Path | None,
    price: float | None,
    memory: str,
    key: str | None = None,
    links: Sequence[str] = (),
) -> dict[str, Any]:
    """Write the page of a pool, or of one `key`, and return what the JSON document says of it.

    Raises `PipelineError`, `CannotAsk` and `OSError`.
    """
    pool = place.pool
    if not place.exists("gold/demand"):
        raise LakeError(f"there are no tables of {pool} in {place.where}: osrdyne pipeline tables makes them")
    if key is not None and output is None:
        raise CannotAsk("--key needs --output: report.html of the lake is the page of the whole pool")
    if key is not None and key != key.encode(errors="replace").decode():
        raise CannotAsk(f"--key {key!r} is not UTF-8, which all keys are")
    if output is None:
        place.check_writable()
    with SmallEngine.open(memory) as engine, Steps() as steps:
        engine.show(place, *TABLES, key=key)
        found = gather(pool, engine.rows, now_ms=time.time_ns() // 1_000_000, progress=steps)
    if key is not None and not found.totals.events:
        raise LakeError(f"no event of the key {key!r} is in the tables of {pool}")
    found = (
        with_recommendation(found, place)
        if key is None
        else dataclasses.replace(found, key=key, no_evidence=OF_THE_POOL)
    )
    text = page(dataclasses.replace(found, price=price, links=tuple(map(options.link_parts, links))))
    if output is None:
        place.write_file(PAGE, text)
    else:
        replace_file(output, text)
    file = f"{place.where}/{PAGE}" if output is None else str(output.absolute())
    return {"report": file, "bytes": len(text.encode()), **dataclasses.asdict(found.totals)}


def with_recommendation(found: ReportContent, lake: AnyLake) -> ReportContent:
    """Return the content with what a recommendation says; as it was where there is none. Raises `LakeError`."""
    content = lake.read_file(FILE)
    if content is None:
        return found
    try:
        document = foreign_json.read(content, most=foreign_json.MOST_BYTES_OF_ENGINES)
        found_evidence, reviewed = evidence(document), review(document)
        reasons = "; ".join(document["reasons"])
        files = tuple((str(option), str(file)) for option, file in document.get("files", ()))
    except (ValueError, KeyError, TypeError) as error:
        raise LakeError(
            f"{lake.where}/{FILE} is not a recommendation ({error!r}): osrdyne pipeline recommend writes it again"
        ) from None
    return dataclasses.replace(
        found,
        evidence=found_evidence,
        review=reviewed,
        files=files,
        no_evidence=f"Nothing is recommended: {reasons}." if reasons else found.no_evidence,
    )
