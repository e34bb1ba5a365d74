"""`make demo`: replays a real day of departures against the running pool and checks every answer.

Rare destinations have hours between their flights: sped up, that is still longer than the pool keeps an
idle worker, so their workers stop and start again all day. Ends with a table and one line for scripts; exits
with 1 when an answer was lost or wrong, with 2 when the replay could not begin.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import json
import sys
from collections.abc import Sequence
from datetime import date
from pathlib import Path

from rich.console import Console

from examples.airports import access, cache, display, replay, report
from examples.airports.group_watch import GroupWatch
from osrdyne_client import AsyncClient, errors
from osrdyne_runtime.console.streams import guarded

#: The Saturday before Christmas: 811 flights from 05:00 to midnight to 90 destinations, some of them ski
#: resorts with one or two flights a day; eight flights are cancelled.
DAY = date(2013, 12, 21)
#: Times faster than the day: 19 hours take 68 seconds.
SPEED = 1000.0
#: Seconds after which a request without an answer counts as lost.
TIMEOUT_SECONDS = 60.0
#: Seconds that the demo waits at its end for idle groups to stop.
SETTLE_SECONDS = 20.0
#: Seconds without a single answer and without a group being started, at the beginning, after which no worker will
#: answer. While groups are started, the requests' own timeout decides: a busy machine takes long to start many at once.
SILENCE_SECONDS = 20.0


class NobodyAnswers(Exception):
    """No daemon, or no worker, serves the pool."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; return the exit code."""
    options = _parser().parse_args(arguments)
    human = Console(stderr=options.json, highlight=False, soft_wrap=True)
    try:
        found = asyncio.run(_run(options, human))
    except KeyboardInterrupt:
        human.print("demo: interrupted")
        return 130
    except (access.NoAccess, cache.NoDataSet, NobodyAnswers) as error:
        return _cannot(error)
    except errors.Undeliverable as error:
        return _cannot(f"the pool {options.pool} does not exist on this broker ({error}); run: make up")
    except errors.BrokerError as error:
        return _cannot(f"{error}; to set up a broker with the pool: make up")
    if found is None:
        return _cannot("no flights in these hours of that day; choose others with --day and --hours")
    human.print(report.table(found))
    if options.json:
        print(json.dumps(dataclasses.asdict(found) | {"day": str(options.day), "speed": options.speed}))
    human.print(found.last_line)
    return 0 if found.good else 1


async def _run(options: argparse.Namespace, human: Console) -> report.Report | None:
    """Replay, check and count."""
    ways = access.find(options.pool, options.broker, options.events)
    with human.status("reading the whole table, to check answers by"):
        from examples.airports.whole_table import WholeTable  # pandas: a second that `--help` need not wait

        whole = await asyncio.to_thread(WholeTable, Path(cache.source()))
        asks = replay.plan(whole.schedule(options.day, *options.hours), options.speed)
    if not asks:
        return None
    watch = await _watch(ways.monitor, options.pool, human)
    async with AsyncClient(ways.client, options.pool, slots=len(asks), timeout=options.timeout) as client:
        seconds, keys = asks[-1].due, len({ask.key for ask in asks})
        human.print(
            f"{options.day}, {len(asks)} departures to {keys} destinations, {options.speed:g} times faster: "
            f"about {seconds:.0f} s"
        )
        progress = replay.Progress()
        with display.shown(progress, watch, human):
            outcomes = await replayed(client.call, asks, progress, watch)
    with human.status("checking every answer against the whole table; idle workers stop meanwhile"):
        checked = asyncio.create_task(asyncio.to_thread(report.check, outcomes, whole.answer))
        groups = await _settled(watch) if watch else (None, None)
        return report.make(outcomes, await checked, groups)


async def replayed(
    call: replay.Call, asks: list[replay.Ask], progress: replay.Progress, watch: GroupWatch | None
) -> list[replay.Outcome]:
    """Replay; when not even the first answers come, end it. Raises `NobodyAnswers`."""
    replaying = asyncio.create_task(replay.replay(call, asks, progress))
    try:
        await asyncio.wait({replaying}, timeout=SILENCE_SECONDS)
        started = watch.started if watch else 0
        if not (progress.outcomes or started or replaying.done()):
            raise NobodyAnswers(
                f"{progress.sent} requests were sent and none was answered within {SILENCE_SECONDS:g} s: is the daemon "
                "running, and can its workers start? See its log; to start it: make up"
            )
        return await replaying
    finally:
        replaying.cancel()


async def _watch(uri: str | None, pool: str, human: Console) -> GroupWatch | None:
    """Begin to count groups; the demo goes on without where it may not, and says so."""
    if uri is None:
        return None
    watch = GroupWatch()
    try:
        await watch.open(uri, pool)
    except errors.NotFound as error:
        await watch.close()
        raise errors.Undeliverable(str(error)) from error
    except errors.BrokerError as error:
        await watch.close()
        human.print(f"groups are not counted, the pool's events cannot be read: {error}")
        return None
    return watch


async def _settled(watch: GroupWatch) -> tuple[int, int]:
    """Wait until idle groups have stopped, but not for ever; return how many were started and stopped."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(watch.all_stopped.wait(), SETTLE_SECONDS)
    await watch.close()
    return watch.started, watch.stopped


def _cannot(problem: object) -> int:
    print(f"demo: {problem}", file=sys.stderr)
    return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make demo", description=(__doc__ or "").partition("\n\n")[0])
    option = parser.add_argument
    option("--broker", metavar="FILE|URI", help="address of the pool's client user, or a file that holds it")
    option("--events", metavar="FILE|URI", help="the same of its monitor user; without it groups are not counted")
    option("--pool", default="airports", help="name of the pool (%(default)s)")
    option("--day", type=_day, default=DAY, help="a day of 2013 (%(default)s)")
    option("--hours", type=_hours, default=(0, 24), metavar="FROM-TO", help="hours of that day (0-24)")
    option("--speed", type=_speed, default=SPEED, help="times faster than the day (%(default)g)")
    option("--timeout", type=_speed, default=TIMEOUT_SECONDS, help="seconds until a request is lost (%(default)g)")
    option("--json", action="store_true", help="print the numbers as one JSON object; the rest goes to stderr")
    return parser


def _day(text: str) -> date:
    day = date.fromisoformat(text)
    if day.year != 2013:
        raise argparse.ArgumentTypeError(f"the data set has the flights of 2013, none of {day.year}")
    return day


def _hours(text: str) -> tuple[int, int]:
    first, _, last = text.partition("-")
    if not (first.isdecimal() and last.isdecimal() and 0 <= int(first) < int(last) <= 24):
        raise argparse.ArgumentTypeError(f"{text!r} is not a pair of hours such as 5-12")
    return int(first), int(last)


def _speed(text: str) -> float:
    speed = float(text)
    if not 0 < speed < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not larger than 0")
    return speed


if __name__ == "__main__":
    with guarded("demo"):
        sys.exit(main())
