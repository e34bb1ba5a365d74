"""One run: everything put together, until all calls have ended or never will."""

from __future__ import annotations

import asyncio
import logging
import random
from contextvars import Context
from dataclasses import dataclass, field
from typing import Any

from osrdyne_relay import RelaySettings, Request
from osrdyne_relay.redis.port import Command
from simulation.relay import processes
from simulation.relay.connection import Process, PulseConnection
from simulation.relay.model import Model
from simulation.relay.scenario import CALLERS, ENDPOINTS, LOAD_SECONDS, REST_SECONDS, SERVERS, Away, Scenario
from simulation.virtual_time import VirtualLoop, run

#: Without TLS, passwords and streams; times are the defaults.
SETTINGS = RelaySettings.from_mapping({"redis": {"url": "redis://model"}})

#: Seconds within which a process that died is started again.
_BACK_SECONDS = 40.0


def request(number: int) -> Request:
    """Return the request of a call."""
    return Request(b"question", headers={"number": str(number)})


@dataclass(slots=True)
class Run:
    """A worker had a request."""

    number: int
    server: str
    began: float
    #: When and why it was abandoned; when it ended.
    abandoned: tuple[float, str] | None = None
    ended: float | None = None


@dataclass(slots=True)
class CallResult:
    """What a call came to: `response`, or the name of an error."""

    at: float
    what: str
    #: Body of the response, or stage of a cancellation.
    detail: str = ""


@dataclass(slots=True)
class World:
    """What a run is made of, and what it came to."""

    scenario: Scenario
    chance: random.Random
    model: Model = field(init=False)
    ears: list[PulseConnection] = field(default_factory=list)
    #: What Redis received while it stood still.
    received: list[tuple[Process, tuple[Command, ...]]] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    #: By number of the call. A caller that died has none for its calls.
    ended: dict[int, CallResult] = field(default_factory=dict)
    #: Calls whose caller died.
    orphaned: dict[int, float] = field(default_factory=dict)
    #: Calls that began after all troubles, with their number.
    probes: set[int] = field(default_factory=set)
    deaths: list[tuple[float, str]] = field(default_factory=list)
    trace: list[str] = field(default_factory=list)
    #: Keys without an end, and errors of tasks.
    wrong: list[str] = field(default_factory=list)
    alive: dict[str, Process] = field(default_factory=dict)
    #: Tasks of the processes, which asyncio would forget.
    tasks: set[asyncio.Task[Any]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.model = Model(self._publish)

    @property
    def loop(self) -> VirtualLoop:
        """The loop in which this happens."""
        running = asyncio.get_running_loop()
        assert isinstance(running, VirtualLoop)
        return running

    def now(self) -> float:
        return self.loop.time()

    def note(self, text: str) -> None:
        self.trace.append(f"{self.now():9.3f} {text}")

    def execute(self, process: Process, commands: tuple[Command, ...]) -> list[Any]:
        """Execute a transaction, and look whether it left a key without an end."""
        answers = self.model.transaction(commands, self.now())
        self.note(f"{process.name}: {_short(commands)} -> {_short(answers)}")
        for key, stays in self.model.stays(self.now()).items():
            if stays is None and (text := f"{key.decode()} has no time to live") not in self.wrong:
                self.wrong.append(text)
        return answers

    def _publish(self, channel: bytes, content: bytes) -> int:
        heard = 0
        for ears in self.ears:
            if self.chance.random() >= self.scenario.pulses_lost:
                heard += ears.hear(channel.decode(), content)
        return heard

    def died(self, process: Process) -> None:
        self.note(f"{process.name} dies")
        self.deaths.append((self.now(), process.name))
        self.loop.call_later(
            self.chance.uniform(0, _BACK_SECONDS), processes.start_again, self, process.name, context=Context()
        )

    def spawn(self, work: Any, context: Context) -> asyncio.Task[Any]:
        task = self.loop.create_task(work, context=context)
        self.tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self.tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.wrong.append(f"a task ended with {error!r}")

    async def happen(self) -> None:
        """Let happen what the scenario has, and wait for the end."""
        for number in range(SERVERS):
            processes.start_server(self, f"server {number}")
        for number in range(CALLERS):
            processes.start_caller(self, f"caller {number}", self.scenario.calls)
        loop = self.loop
        for begin, end, how in self.scenario.away:
            loop.call_at(begin, self._goes_away, how)
            loop.call_at(end, self._comes_back, how)
        for at in self.scenario.flushes:
            loop.call_at(at, self._flush)
        for trouble in self.scenario.troubles:
            loop.call_at(trouble.at, processes.trouble, self, trouble)
        await asyncio.sleep(LOAD_SECONDS + REST_SECONDS - 60)
        processes.probe(self, ENDPOINTS)
        await asyncio.sleep(60)

    def _goes_away(self, how: Away) -> None:
        self.note(f"Redis goes away: {how.value}")
        if how is not Away.STILL:
            for ears in list(self.ears):
                ears.break_off()
        if how is Away.KILLED:
            self.model.flush()

    def _comes_back(self, how: Away) -> None:
        self.note("Redis comes back")
        # Each connection keeps its order, and they take turns by chance.
        received, self.received = self.received, []
        self.chance.shuffle(received)
        for process, commands in received:
            self.execute(process, commands)

    def _flush(self) -> None:
        self.note("Redis loses its data")
        self.model.flush()


def simulate(scenario: Scenario) -> World:
    """Run a scenario to its end."""

    async def program() -> World:
        world = World(scenario, random.Random(f"what happens {scenario.seed}"))
        await world.happen()
        return world

    logging.disable(logging.CRITICAL)
    try:
        return run(scenario.seed, program)
    finally:
        logging.disable(logging.NOTSET)


def _short(found: Any) -> str:
    if isinstance(found, (tuple, list)):
        return f"[{' '.join(map(_short, found))}]"
    return (found.decode(errors="replace") if isinstance(found, bytes) else str(found))[:70]
