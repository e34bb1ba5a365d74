"""`osrdyne replay`: what a pool would have recorded of a list of calls, as a file of events.

Reads the list and the pool's delays; writes the events. Uses no broker. The same list, settings and seed give the same
file, byte for byte.
"""

from __future__ import annotations

import functools
import gzip
import io
import json as json_module
import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress

from osrdyne.commands.replay import calls_file
from osrdyne.commands.replay.simulated_pool import Circumstances, PastCall, PastEvent, Replay, Tally
from osrdyne.lifetime.window_rules import Schedule
from osrdyne.settings.daemon import BrokerSettings, IntervalSettings
from osrdyne_pool import settings_file
from osrdyne_pool.settings import Delays, PoolSettings
from osrdyne_protocol.errors import SettingsError
from osrdyne_runtime.console.output import CannotAsk, one_line_errors, print_json, seconds_of

#: Rows between two updates of the progress display.
_PROGRESS_ROWS = 10_000
_HOUR_MS = 3_600_000


@one_line_errors
def command(
    calls: Annotated[Path, typer.Option(help="The calls: time,key[,duration] as .csv or .jsonl, or these with .gz.")],
    out: Annotated[Path, typer.Option(help="The file of events to write: .jsonl or .jsonl.gz.")],
    settings: Annotated[
        Path | None, typer.Option(help="The daemon's settings file, of which only delays and intervals are read.")
    ] = None,
    unbind_delay: Annotated[str | None, typer.Option(help="In the place of the settings': 600, or PT10M.")] = None,
    stop_delay: Annotated[str | None, typer.Option(help="In the place of the settings'.")] = None,
    start_time: Annotated[str, typer.Option(help="From a group's start until its worker serves; the median.")] = "2",
    start_spread: Annotated[
        float, typer.Option(min=0, max=3, help="0: each start takes that long; else sigma of a log-normal around it.")
    ] = 0.0,
    run_time: Annotated[str, typer.Option(help="How long a worker works for a call without duration.")] = "0.05",
    seed: Annotated[int, typer.Option(help="Another seed gives other ids and other start times.")] = 0,
    json: Annotated[bool, typer.Option("--json", help="Print the summary as one JSON document.")] = False,
) -> None:
    """Write the events that a pool would have recorded of these calls, by the daemon's own rules in virtual time.

    Each group has one worker, which serves its queue in order. No request fails, and no start waits for another.
    Without settings, delays are those that a pool has by default.
    """
    if not out.name.endswith((".jsonl", ".jsonl.gz")):
        raise CannotAsk(f"--out: {out} is neither .jsonl nor .jsonl.gz; events are written as JSON lines")
    delays = {"unbind_delay": unbind_delay, "stop_delay": stop_delay}
    given = {name: seconds_of(text, f"--{name.replace('_', '-')}") for name, text in delays.items() if text is not None}
    pool, broker, intervals = _settings(settings, given)
    ids, starts = random.Random(f"ids {seed}"), random.Random(f"starts {seed}")
    median = _ms(seconds_of(start_time, "--start-time"))
    one = Replay(
        Circumstances(
            delays=_delays(pool),
            warm=Schedule(pool.overrides),
            debounce=_ms(intervals.debounce),
            statistics_interval=max(10, _ms(broker.statistics_interval)),
            start=lambda: round(median * math.exp(starts.gauss(0.0, start_spread))) if start_spread else median,
            run=_ms(seconds_of(run_time, "--run-time")),
            identity=lambda: f"{ids.getrandbits(128):032x}",
            daemon_id=f"replay-{seed}",
            request_prefix=f"{seed}-",
        )
    )
    with calls_file.opened(calls) as (rows, done), _progress(done) as watched, _written(out) as file:
        _write(file, one.run(watched(rows)))
    _report(one.tally, out, as_json=json)


def _settings(path: Path | None, delays: Mapping[str, float]) -> tuple[PoolSettings, BrokerSettings, IntervalSettings]:
    """Read the settings that decide about a key's life, with these delays for the pool; others may be missing."""
    if path is None:
        return PoolSettings.from_mapping({"name": "replay", **delays}), BrokerSettings(), IntervalSettings()
    values = settings_file.read(path)
    try:
        return (
            PoolSettings.from_mapping({**_table(values, "pool"), **delays}),
            BrokerSettings.from_mapping(_table(values, "broker"), path="broker"),
            IntervalSettings.from_mapping(_table(values, "intervals"), path="intervals"),
        )
    except SettingsError as error:
        raise SettingsError(f"{path}: {error.path}", error.problem) from None


def _table(values: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    table = values.get(name, {})
    if not isinstance(table, Mapping):
        raise SettingsError(name, f"is not a table; write [{name}]")
    return table


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


def _delays(pool: PoolSettings) -> Callable[[str], Delays]:
    """Return the delays of each key in whole milliseconds."""

    def of(delays: Delays) -> Delays:
        spans = tuple((_ms(begin), _ms(end)) for begin, end in delays.prewarm)
        return Delays(max(1, _ms(delays.unbind_delay)), max(1, _ms(delays.stop_delay)), prewarm=spans)

    usual = of(Delays(pool.unbind_delay, pool.stop_delay))
    others = {key: of(delays) for key, delays in pool.overrides.items()}
    return lambda key: others.get(key, usual)


@contextmanager
def _progress(done: Callable[[], float]) -> Iterator[Callable[[Iterable[PastCall]], Iterator[PastCall]]]:
    """Yield a function that passes calls on and shows on a terminal how much of the file has been read."""
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("replaying", total=1.0)

        def watched(calls: Iterable[PastCall]) -> Iterator[PastCall]:
            for number, call in enumerate(calls):
                if number % _PROGRESS_ROWS == 0:
                    bar.update(task, completed=done())
                yield call

        yield watched


@contextmanager
def _written(path: Path) -> Iterator[io.TextIOBase]:
    """Yield a file to write to; it replaces the file at `path` when it is complete."""
    fresh = path.with_name(f".{path.name}.new")
    try:
        with fresh.open("wb") as raw:
            if path.name.endswith(".gz"):
                # Neither name nor time in its head: the same events are the same bytes.
                with gzip.GzipFile("", "wb", 3, raw, mtime=0) as packed, io.TextIOWrapper(packed, "utf-8") as text:
                    yield text
            else:
                with io.TextIOWrapper(raw, "utf-8") as text:
                    yield text
        fresh.replace(path)
    except OSError as error:
        raise CannotAsk(f"--out: {path} cannot be written: {error.strerror or error}") from error
    finally:
        fresh.unlink(missing_ok=True)


def _write(file: io.TextIOBase, events: Iterator[PastEvent]) -> None:
    written = functools.lru_cache(65_536)(functools.partial(json_module.dumps, ensure_ascii=False))
    for event in events:
        # Only a key can hold what JSON has to escape; a general encoder takes as long as all the rest.
        line = f'{{"key": {written(event.key)}, "event": "{event.event}", "event_id": "{event.event_id}"'
        line += f', "time_ms": {event.time_ms}'
        if event.worker_id is not None:
            line += f', "worker_id": "{event.worker_id}"'
        if event.request_id is not None:
            line += f', "request_id": "{event.request_id}"'
        if event.outcome is not None:
            line += f', "outcome": "{event.outcome}"'
        if event.duration_ms is not None:
            line += f', "duration_ms": {event.duration_ms}'
        file.write(line + "}\n")


def _report(tally: Tally, out: Path, *, as_json: bool) -> None:
    summary = {
        "events": tally.events,
        "requests": tally.calls,
        "cold": tally.cold,
        "starts": tally.starts,
        "worker_hours": round(tally.up / _HOUR_MS, 3),
        "busy_hours": round(tally.busy / _HOUR_MS, 3),
        "longest_wait_seconds": tally.longest_wait / 1000,
        "first": _moment(tally.first),
        "last": _moment(tally.last),
        "out": str(out),
    }
    if as_json:
        print_json(summary)
        return
    if not tally.calls:
        typer.echo(f"{out}: no calls, no events")
        return
    typer.echo(
        f"{out}: {tally.events} events of {tally.calls} requests from {summary['first']} to {summary['last']}: "
        f"{tally.cold} found no queue, {tally.starts} starts of groups, {summary['worker_hours']} worker hours, "
        f"{summary['busy_hours']} of them busy; the longest wait was {summary['longest_wait_seconds']} s"
    )


def _moment(time_ms: int | None) -> str | None:
    return None if time_ms is None else datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="seconds")
