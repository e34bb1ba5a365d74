"""`osrdyne pipeline run`: ingest, tables, recommend and report, one after the other, for a timer to start."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from osrdyne_pipeline import ingest
from osrdyne_pipeline.commands import ingest as ingest_command
from osrdyne_pipeline.commands import options, recommend, report, tables
from osrdyne_pipeline.commands.ingest import OnGap, UriFile
from osrdyne_pipeline.commands.output import one_line_errors
from osrdyne_pipeline.commands.report import Output
from osrdyne_pipeline.commands.starting import AUTO, chosen, duckdb
from osrdyne_pipeline.errors import PipelineError
from osrdyne_pipeline.ingest import IngestRules
from osrdyne_pipeline.source.options import ERROR
from osrdyne_pipeline.store.opening import lake_at
from osrdyne_protocol.errors import OsrdyneError
from osrdyne_runtime.console.output import CANNOT, CannotAsk, PartlyDone, complain, print_json, seconds_of

#: Seconds that a step has to end by itself once the time is over. Then the process ends as it is, which loses nothing.
GRACE_SECONDS = 30.0
DEFAULT_LIMIT = "PT1H"


class TookTooLong(PipelineError):
    """The time of the run is over."""


@one_line_errors
def command(
    pool: options.Pool,
    lake: options.Lake = options.DEFAULT_LAKE,
    uri_file: UriFile = None,
    on_gap: OnGap = ERROR,
    settings: Annotated[
        Path | None,
        typer.Option(
            exists=True, dir_okay=False, metavar="FILE", help="Settings file with the delays of today, in its [pool]."
        ),
    ] = None,
    apply: Annotated[bool, typer.Option("--apply", help="Write recommended delays into that file.")] = False,
    output: Output = None,
    price: options.Price = None,
    link: options.Links = None,
    time_limit: Annotated[
        str,
        typer.Option(
            envvar="OSRDYNE_PIPELINE_TIME_LIMIT", metavar="DURATION", help="The longest that the run may take."
        ),
    ] = DEFAULT_LIMIT,
    engine: options.Engine = AUTO,
    master: options.Master = None,
    memory: options.Memory = options.DEFAULT_MEMORY,
    json: options.Json = False,
) -> None:
    """Do a whole run: bring new events into the lake, make the tables, look for better delays, write the page.

    For a timer. A run that was ended goes on where it stopped when the command is run again: no event is lost, and none
    counted twice. While a run writes to the lake of a pool, another one is refused.
    """
    seconds = seconds_of(time_limit, "--time-limit")
    if not seconds:
        raise CannotAsk("--time-limit: give a time that is longer than 0 seconds")
    if apply and settings is None:
        raise CannotAsk("--apply needs a file to write: give --settings")
    how: dict[str, Any] = {"engine": engine, "master": master, "memory": memory}
    place, done = lake_at(lake, pool), _RunProgress(json=json)
    if engine != AUTO or master is not None:
        chosen(engine, master, place)  # refuses what cannot be done, before anything is read
    place.check_writable()
    begun = time.monotonic()
    # Where it is in an object store, another lake holds what this one sees: see `StoreLake.only_writer`.
    with lake_at(lake, pool).only_writer("run"), _within(seconds, time_limit, done):
        with done.step("ingest") as outcome, duckdb(place, memory) as taking:
            taken = ingest.ingest_stream(
                taking,
                place,
                uri_file=None if uri_file is None else str(uri_file),
                rules=IngestRules(on_gap=on_gap),
                progress=ingest_command.print_progress,
            )
            outcome |= ingest_command.counts(taken)
        if not place.exists("bronze"):
            done.say(f"the stream of {pool} has no events yet")
        else:
            with done.step("tables") as outcome:
                outcome["rows"] = tables.make(place, **how)
            with done.step("recommend") as outcome:
                outcome |= recommend.for_settings(place, settings, apply=apply, **how)
            with done.step("report") as outcome:
                outcome |= report.write(place, output=output, price=price, memory=memory, links=link or ())
    took = round(time.monotonic() - begun, 1)
    if json:
        print_json({"pool": pool, "lake": place.where, **done.parts, "seconds": took})
        return
    done.say(f"run of {pool} in {place.where}, {took} s")


class _RunProgress:
    """What the steps of a run have done so far."""

    def __init__(self, *, json: bool) -> None:
        #: Step -> what the JSON document of its command says, but for the pool and the lake.
        self.parts: dict[str, dict[str, Any]] = {}
        self.at = "begin"
        self._json = json

    @contextmanager
    def step(self, name: str) -> Iterator[dict[str, Any]]:
        """Give a table for what a step has done. Raises `PartlyDone` in place of the step's error."""
        self.at = name
        outcome: dict[str, Any] = {}
        try:
            yield outcome
        except (OsrdyneError, PipelineError, OSError) as error:
            raise self.halfway(error) from error
        self.parts[name] = outcome
        self.say(f"{name}: {_line(name, outcome)}")

    def halfway(self, error: Exception) -> PartlyDone:
        """Return the error of the run: its step, and what was done before."""
        return PartlyDone(CannotAsk(f"{self.at}: {error}"), self.parts)

    def say(self, line: str) -> None:
        """Print a line for a person."""
        if not self._json:
            typer.echo(line)


def _line(step: str, outcome: dict[str, Any]) -> str:
    """Return the line about a step for a person."""
    if step == "ingest":
        reasons = ", ".join(f"{reason}: {number:,}" for reason, number in sorted(outcome["reasons"].items()))
        rejects = f"{outcome['rejects']:,} rejects"
        return f"{outcome['events']:,} new events, {f'{rejects} ({reasons})' if reasons else rejects}"
    if step == "tables":
        return f"{outcome['rows']['silver/requests']:,} requests of {outcome['rows']['bronze']:,} events"
    if step == "report":
        return str(outcome["report"])
    if outcome["goes_back"]:
        what = "the last change broke its promise: go back to the delays before it"
    elif outcome["recommended"]:
        what = "there are better delays"
    else:
        what = f"no change ({'; '.join(outcome['reasons'])})"
    written = [change["file"] for change in outcome["changes"] if change["written"]]
    return f"{what}; written: {', '.join(written)}" if written else what


@contextmanager
def _within(seconds: float, limit: str, done: _RunProgress) -> Iterator[None]:
    """End what takes longer, as Ctrl-C would; and the process, where that does not help within `GRACE_SECONDS`.

    The signal is SIGUSR1: a job that a shell's script starts in the background ignores SIGINT.

    Raises `PartlyDone`. What was killed is repeated without loss by the next run, so it is safe to end the process.
    """
    over = threading.Event()

    def say() -> PartlyDone:
        words = f"not done within {limit}, and ended; the next run goes on: give more by --time-limit"
        return done.halfway(TookTooLong(words))

    def end() -> None:
        over.set()
        os.kill(os.getpid(), number)
        if not ended.wait(GRACE_SECONDS):
            complain(str(say()))
            os._exit(CANNOT)

    ended = threading.Event()
    # A handler can be set in the main thread only, where the program runs its commands.
    number = signal.SIGINT
    if threading.current_thread() is threading.main_thread():
        number = signal.SIGUSR1
        signal.signal(number, signal.default_int_handler)
    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    except KeyboardInterrupt:
        if over.is_set():
            raise say() from None
        raise
    finally:
        timer.cancel()
        ended.set()
