"""From what went wrong to the first forwarded orphan: a killed daemon, a restarted broker, a standby that takes over.

A killed daemon is compared with one that starts after a good end, round by round; the others with the time they are
allowed. Brokers of its own, of both versions, because they are stopped and started.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from benchmarks.ratios import Row, Target, compared
from benchmarks.rig import Rig
from benchmarks.watching import watching
from faults.proxy import Proxy
from osrdyne_protocol.events import FORWARDED
from testbed.broker import SUITES, Broker
from testbed.pool import DaemonProcess, Pool

#: Seconds that each may take.
AFTER_BROKER_SECONDS, AFTER_KILL_SECONDS = 5.0, 10.0
#: Seconds beyond two heartbeats in which a connection that went silent is replaced.
AFTER_SILENCE_SECONDS = 5.0
KILLED = Target(1.2, at_most=True)
IN_TIME = Target(1.0, at_most=True)
#: Keys that every daemon finds when it starts.
KEYS = 20

_number = count()


def measure(rig: Rig) -> list[Row]:
    """Return four rows a broker version."""
    return [row for version in ([rig.broker.version] if rig.quick else sorted(SUITES)) for row in _rows(rig, version)]


def _rows(rig: Rig, version: str) -> list[Row]:
    heartbeat = 1.0 if rig.quick else 5.0
    with Broker(version) as broker, _pool(broker, "one") as place, _pool(broker, "other") as other:
        rig.progress(f"recovery: RabbitMQ {version}, starts")
        clean, killed = _starts(place, other, rig.rounds)
        rig.progress(f"recovery: RabbitMQ {version}, standbys")
        rounds = 1 if rig.quick else 3
        taken = [asyncio.run(_standby_after_kill(place)) for _ in range(rounds)]
        silent = [asyncio.run(_standby_after_silence(place, heartbeat)) for _ in range(rounds)]
        rig.progress(f"recovery: RabbitMQ {version}, broker restarts")
        restarted = [asyncio.run(_broker_restart(place)) for _ in range(rounds)]
    on = f"on {version}"
    return [
        compared(f"daemon killed, until an orphan is forwarded, {on}", "s", killed, clean, "a clean start", KILLED),
        _within(f"leader killed, until the standby forwards, {on}", taken, AFTER_KILL_SECONDS),
        _within(
            f"leader's connection silent, until an orphan is forwarded, {on}",
            silent,
            2 * heartbeat + AFTER_SILENCE_SECONDS,
        ),
        _within(f"broker restarted, from its first accepted connection, {on}", restarted, AFTER_BROKER_SECONDS),
    ]


def _within(measure: str, seconds: list[float], allowed: float) -> Row:
    return compared(measure, "s", seconds, [allowed] * len(seconds), "what is allowed", IN_TIME)


@dataclass(frozen=True, slots=True)
class Place:
    """A pool on a broker of the measurement's own, and a directory for its daemons."""

    broker: Broker
    pool: Pool
    directory: Path

    @contextmanager
    def daemon(self, heartbeat: float = 5.0, port: int | None = None) -> Iterator[DaemonProcess]:
        """Prepare a daemon with the default intervals, which reaches the broker by another port if asked."""
        intervals = {"queue_listing": 5.0, "recheck": 30.0, "debounce": 1.0}
        broker = {"statistics_interval": 7.5, "heartbeat": heartbeat}
        process = DaemonProcess.of(
            self.pool, self.directory / f"daemon-{next(_number)}", intervals=intervals, broker=broker
        )
        if port is not None:
            file = process.directory / "amqp.uri"
            file.write_text(file.read_text().replace(f":{self.broker.amqp_port}/", f":{port}/"))
        try:
            yield process
        finally:
            process.close()


@contextmanager
def _pool(broker: Broker, vhost: str) -> Iterator[Place]:
    with tempfile.TemporaryDirectory(prefix="osrdyne-recovery-") as directory:
        broker.management.add_vhost(vhost, broker.admin)
        yield Place(broker, Pool.on(broker, vhost, name="bench"), Path(directory))


async def _until_forwarded(place: Place, wrong: Callable[[], Awaitable[object]]) -> float:
    """Return seconds from the end of `wrong` until an orphan that was published then is forwarded."""
    async with watching(place.pool) as watch:
        key = f"key-{next(_number)}"
        await wrong()
        began = time.monotonic()
        watch.cast([key], b"x")
        return await watch.wait([key], (FORWARDED,)) - began


# --- a daemon that starts ---------------------------------------------------------------------------------------------


def _starts(one: Place, other: Place, rounds: int) -> tuple[list[float], list[float]]:
    """Return seconds from the start after a good end, and from SIGKILL with a start at once.

    Both at the same moment, on two pools that swap their parts: a start is a second of processor time, and comparing
    one with the next would compare what else the machine does.
    """
    clean: list[float] = []
    killed: list[float] = []
    with one.daemon() as first, other.daemon() as second:
        for place, daemon in ((one, first), (other, second)):
            daemon.start()
            asyncio.run(_fill(place))
        sides = ((one, first), (other, second))
        for number in range(rounds):
            (_, stopped), (_, living) = pair = sides if number % 2 == 0 else sides[::-1]
            stopped.stop()
            for times, seconds in zip((clean, killed), asyncio.run(_start_both(*pair)), strict=True):
                times.append(seconds)
            for daemon in (stopped, living):
                daemon.wait_for("leading")
    return clean, killed


async def _fill(place: Place) -> None:
    async with watching(place.pool) as watch:
        keys = [f"key-{next(_number)}" for _ in range(KEYS)]
        watch.cast(keys, b"x")
        await watch.wait(keys, (FORWARDED,))


async def _start_both(stopped: tuple[Place, DaemonProcess], living: tuple[Place, DaemonProcess]) -> tuple[float, float]:
    """Start a daemon that was stopped, and one that is killed now; return seconds to the first forward of each."""
    key = f"key-{next(_number)}"
    async with watching(stopped[0].pool) as clean, watching(living[0].pool) as killed:
        began = time.monotonic()
        stopped[1].start(ready=False)
        began_killed = time.monotonic()
        assert living[1].process is not None
        living[1].process.kill()
        # What a service manager does that restarts at once: the process is gone, its sockets with it.
        living[1].process.wait()
        living[1].start(ready=False)
        for watch in (clean, killed):
            watch.cast([key], b"x")
        ends = await asyncio.gather(clean.wait([key], (FORWARDED,)), killed.wait([key], (FORWARDED,)))
    return ends[0] - began, ends[1] - began_killed


# --- a standby --------------------------------------------------------------------------------------------------------


async def _standby_after_kill(place: Place) -> float:
    with place.daemon() as leader, place.daemon() as standby:
        _one_leads(leader, standby)

        async def kill() -> None:
            leader.stop(signal.SIGKILL)

        return await _until_forwarded(place, kill)


async def _standby_after_silence(place: Place, heartbeat: float) -> float:
    with (
        Proxy(place.broker.amqp_port, "leader") as proxy,
        place.daemon(heartbeat, proxy.ports["leader"]) as leader,
        place.daemon(heartbeat) as standby,
    ):
        _one_leads(leader, standby)

        async def silence() -> None:
            proxy.silence("leader")

        return await _until_forwarded(place, silence)


def _one_leads(leader: DaemonProcess, standby: DaemonProcess) -> None:
    leader.start()
    standby.start(ready=False)
    standby.wait_for("standby")


# --- the broker -------------------------------------------------------------------------------------------------------


async def _broker_restart(place: Place) -> float:
    """Return seconds from the first connection that the broker's port accepts to the first forward."""
    with place.daemon() as daemon:
        daemon.start()
        place.broker.stop()
        starting = asyncio.create_task(asyncio.to_thread(place.broker.start))
        began = await asyncio.to_thread(_first_accepted, place.broker.amqp_port)
        key = f"key-{next(_number)}"
        async with watching(place.pool) as watch:
            watch.cast([key], b"x")
            took = await watch.wait([key], (FORWARDED,)) - began
        await starting
        return took


def _first_accepted(port: int) -> float:
    """Return when a port first accepts a connection."""
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1.0):
            return time.monotonic()
        time.sleep(0.02)
