"""`osrdyne pipeline ingest`: bring a pool's events into the lake, from its stream or from files."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Annotated, Any

import typer

from osrdyne_pipeline import ingest, places
from osrdyne_pipeline.commands import options
from osrdyne_pipeline.commands.output import one_line_errors
from osrdyne_pipeline.commands.starting import duckdb
from osrdyne_pipeline.ingest import IngestProgress, IngestRules
from osrdyne_pipeline.source import consumer
from osrdyne_pipeline.source.options import ERROR, RECORD
from osrdyne_pipeline.store.opening import lake_at
from osrdyne_runtime.console.output import CannotAsk, complain, print_json

if TYPE_CHECKING:
    from osrdyne_pipeline.store.opening import AnyLake


def _on_gap(word: str) -> str:
    if word not in (ERROR, RECORD):
        raise typer.BadParameter(f"{word!r} is neither {ERROR} nor {RECORD}")
    return word


def _paths(files: list[Path] | None) -> list[Path] | None:
    for file in files or ():
        if wrong := places.lake_problem(file):
            raise typer.BadParameter(wrong)
    return files


UriFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="File with the address of the broker, as a user who may read the stream; or OSRDYNE_EVENTS_URI.",
    ),
]
OnGap = Annotated[
    str,
    typer.Option(
        callback=_on_gap,
        metavar="error|record",
        help="What to do where retention removed events before they were read: stop, or note it in the rejects.",
    ),
]


@one_line_errors
def command(
    pool: options.Pool,
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            callback=_paths,
            metavar="[FILE]...",
            help="Files or folders (Parquet, JSON lines), or s3:// addresses.",
        ),
    ] = None,
    lake: options.Lake = options.DEFAULT_LAKE,
    uri_file: UriFile = None,
    follow: Annotated[bool, typer.Option("--follow", help="Go on with new events until Ctrl-C or SIGTERM.")] = False,
    on_gap: OnGap = ERROR,
    new_stream: Annotated[
        bool, typer.Option("--new-stream", help="The stream was deleted and made again: read it from its first event.")
    ] = False,
    master: options.Master = None,
    memory: options.Memory = options.DEFAULT_MEMORY,
    json: options.Json = False,
) -> None:
    """Bring events into bronze, each once: a run goes on where the last one stopped, however that ended.

    A message that is not an event goes to the rejects with its reason, and stops nothing.
    """
    if files and (uri_file is not None or follow or new_stream or on_gap != ERROR):
        raise CannotAsk(
            "files are read as they are: --uri-file, --follow, --on-gap and --new-stream are for the stream",
        )
    del master  # an option of all commands; one reader needs no cluster
    place = lake_at(lake, pool)
    place.check_writable()
    begun = time.monotonic()
    with duckdb(place, memory) as engine:
        if files:
            done = ingest.ingest_files(engine, place, files, progress=print_progress)
        else:
            done = ingest.ingest_stream(
                engine,
                place,
                uri_file=None if uri_file is None else str(uri_file),
                rules=IngestRules(on_gap=on_gap, new_stream=new_stream),
                follow=follow,
                stop=_stopping(follow),
                progress=print_progress,
            )
    print_outcome(done, pool, place, time.monotonic() - begun, json=json)


def _stopping(follow: bool) -> Event:
    """Return an event that Ctrl-C and SIGTERM set. If the broker answers, the batch in hand is finished first."""
    stop = Event()

    def on_signal(*_: object) -> None:
        stop.set()
        consumer.hurry()

    for number in (signal.SIGINT, signal.SIGTERM) if follow else ():
        signal.signal(number, on_signal)
    return stop


def print_progress(so_far: IngestProgress) -> None:
    """Print on standard error how far a run is."""
    part = f"{100 * so_far.done / so_far.total:.0f} %" if so_far.total else "-"
    typer.echo(f"  {part:>5}  {so_far.events:,} events, {so_far.rejects:,} rejects", err=True)


def print_outcome(done: IngestProgress, pool: str, place: AnyLake, seconds: float, *, json: bool) -> None:
    """Print what a run has done."""
    if json:
        more = {"known_files": done.known_files, "seconds": round(seconds, 1)}
        print_json({"pool": pool, "lake": place.where, **counts(done), **more})
        return
    known = f", {done.known_files:,} files were known" if done.known_files else ""
    typer.echo(
        f"{done.events:,} new events of {pool} in {place.where}, {done.rejects:,} rejects{known}, {seconds:.1f} s"
    )
    for reason, number in sorted(done.reasons.items(), key=lambda pair: -pair[1]):
        complain(f"rejected, {reason}: {number:,}")


def counts(done: IngestProgress) -> dict[str, Any]:
    """Return what the JSON document of a run says of it."""
    return {"events": done.events, "rejects": done.rejects, "reasons": done.reasons, "batches": done.batches}
