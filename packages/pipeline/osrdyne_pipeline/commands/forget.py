"""`osrdyne pipeline forget`: take events out of the lake that should not have been taken in."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from osrdyne_pipeline import forgetting
from osrdyne_pipeline.commands import options
from osrdyne_pipeline.commands.output import Steps, one_line_errors
from osrdyne_pipeline.commands.recommend import FILE
from osrdyne_pipeline.commands.starting import AUTO, started
from osrdyne_pipeline.errors import LakeError
from osrdyne_pipeline.forgetting import ForgetCounts, ForgetSelection
from osrdyne_pipeline.promises import changes
from osrdyne_pipeline.small.engine import QUERIES
from osrdyne_pipeline.source.files import name_of
from osrdyne_pipeline.store.opening import lake_at
from osrdyne_pipeline.tables import build
from osrdyne_runtime.console.output import CannotAsk, print_json

if TYPE_CHECKING:
    from osrdyne_pipeline.store.opening import AnyLake

#: In the folder of the pool: what `recommend` and `report` made of the tables.
_MADE = (FILE, changes.FILE, "report.html")


@one_line_errors
def command(
    pool: options.Pool,
    lake: options.Lake = options.DEFAULT_LAKE,
    source: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE", help="Events of this file, or of this stream; may be repeated."),
    ] = None,
    before: Annotated[
        datetime | None,
        typer.Option(parser=options.moment, metavar="TIME", help="Events before this time, as 2020-01-01 (in UTC)."),
    ] = None,
    event_id: Annotated[
        list[str] | None, typer.Option(metavar="ID", help="The event with this id; may be repeated.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Forget them. Otherwise they are only shown.")] = False,
    engine: options.Engine = AUTO,
    master: options.Master = None,
    memory: options.Memory = options.DEFAULT_MEMORY,
    json: options.Json = False,
) -> None:
    """Remove events from the lake that were taken in wrongly, and make the tables again without them.

    Give one of --source, --before and --event-id. Without --yes, the command shows what it would remove. What was
    forgotten is not read again: ingest knows its file, and where it is in the stream.
    """
    if sum(bool(option) for option in (source, before, event_id)) != 1:
        raise CannotAsk("give one of --source, --before and --event-id")
    place = lake_at(lake, pool)
    if not place.exists("bronze"):
        raise LakeError(f"there are no events of {pool} in {place.where}: osrdyne pipeline ingest brings them")
    wanted = ForgetSelection(
        sources=frozenset(name for text in source or () for name in (text, name_of(Path(text).absolute()))),
        before_ms=None if before is None else int(before.timestamp() * 1000),
        event_ids=frozenset(event_id or ()),
    )
    if yes:
        place.check_writable()
    if not yes:
        found = forgetting.find(place, wanted)
    else:
        with place.only_writer("ingest"), place.only_writer("tables"):
            found = forgetting.find(place, wanted)
            if found.rows and place.exists("silver/events"):
                # The engine first: where it cannot start, nothing is removed.
                with started("forget", place, engine=engine, master=master, memory=memory) as session, Steps() as steps:
                    _forget(place, wanted)
                    build(session, place, steps)
                    _only_newest(place)
            elif found.rows:
                _forget(place, wanted)
            else:
                # Where an earlier one was cut short, the versions before still have what was made of it.
                _only_newest(place)
    _print_counts(found, place, forgotten=yes, json=json)


def _forget(place: AnyLake, wanted: ForgetSelection) -> None:
    # First: where a kill cuts this short, nothing stays that was made of what is forgotten.
    for name in _MADE:
        place.remove_file(name)
    forgetting.forget(place, wanted)


def _only_newest(place: AnyLake) -> None:
    for name in QUERIES:
        if place.exists(name):
            place.remove_older_versions(name)


def _print_counts(found: ForgetCounts, place: AnyLake, *, forgotten: bool, json: bool) -> None:
    events, rejects = found.rows["bronze"], found.rows["rejects"]
    if json:
        counts = {"events": events, "rejects": rejects, "sources": dict(found.sources)}
        times = {"first_ms": found.first_ms, "last_ms": found.last_ms}
        print_json({"pool": place.pool, "lake": place.where, "forgotten": forgotten, **counts, **times})
        return
    typer.echo(f"{events:,} events and {rejects:,} rejects of {place.pool} in {place.where}{_span(found)}")
    for name, number in found.sources.most_common(20):
        typer.echo(f"  {number:>12,}  {name}")
    if not found.rows:
        typer.echo(
            "there is nothing to forget; if an earlier one was cut short, run osrdyne pipeline tables, then this"
        )
    elif forgotten:
        typer.echo("they are forgotten; run recommend and report again")
    else:
        typer.echo("nothing was changed: --yes forgets them")


def _span(found: ForgetCounts) -> str:
    if found.first_ms is None or found.last_ms is None:
        return ""
    return f", of {_shown(found.first_ms)} to {_shown(found.last_ms)}"


def _shown(time_ms: int) -> str:
    try:
        return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="seconds")
    except (OverflowError, ValueError, OSError):
        return f"{time_ms} ms"
