"""How a process reaches the model of Redis: what is lost, comes late or breaks on the way, and where a process dies."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextvars import Context
from typing import TYPE_CHECKING, Any

from osrdyne_relay import Relay
from osrdyne_relay.errors import RelayError
from osrdyne_relay.redis.names import CLAIM
from osrdyne_relay.redis.port import Away as NoAnswer
from osrdyne_relay.redis.port import Command, Hear, RedisPort, Subscriber
from simulation.relay.scenario import LOAD_SECONDS, Away
from simulation.virtual_time import Clock, context_of

if TYPE_CHECKING:
    from simulation.relay.world import World

#: Seconds after which a process gives up an answer, and within which a late command arrives.
ANSWER_TIMEOUT_SECONDS, LATEST_SECONDS = 5.0, 25.0


class Process:
    """What a node runs in: it lives, stands still, or is dead."""

    def __init__(self, name: str, world: World) -> None:
        self.name = name
        self.dead = False
        #: The node in it.
        self.relay: Relay
        self.clock = Clock()
        self._world = world
        #: Set while it claims a request.
        self.claims = asyncio.Event()
        #: Called when it dies.
        self.at_end: list[Callable[[], None]] = []

    def lives(self) -> None:
        """End the task of a process that is dead."""
        if self.dead:
            raise asyncio.CancelledError

    def spawn(self, work: Any) -> asyncio.Task[None]:
        """Start a task of this process, which stands still with it."""
        return self._world.spawn(work, context_of(self.clock))

    def stand_still(self, seconds: float) -> None:
        """Let it do nothing for a time. What it has sent reaches Redis, and answers wait for it."""
        loop = self._world.loop
        loop.stand_still(self.clock)
        loop.call_later(seconds, loop.go_on, self.clock, context=Context())

    def die(self) -> None:
        """End at once: nothing of it reaches Redis from here on."""
        if not self.dead:
            self.dead = True
            self._world.loop.go_on(self.clock)
            self._world.died(self)
            for end in self.at_end:
                end()


class Connection(RedisPort):
    """The Redis of one process."""

    def __init__(self, world: World, process: Process) -> None:
        self._world = world
        self._process = process
        self._chance = world.chance

    async def run(self, *commands: Command) -> list[Any]:
        if not any(command[2:3] == (CLAIM,) and len(command) == 4 for command in commands):
            return await self._run(commands)
        self._process.claims.set()
        try:
            return await self._run(commands)
        finally:
            self._process.claims.clear()

    async def _run(self, commands: tuple[Command, ...]) -> list[Any]:
        self._process.lives()
        if self._dies():
            self._process.die()
            raise asyncio.CancelledError
        loop = self._world.loop
        given_up = loop.time() + ANSWER_TIMEOUT_SECONDS
        # On their way and in Redis, commands are nothing of the process, which may stand still.
        answers = await loop.create_task(self._reach(commands), context=Context())
        if answers is None:
            await asyncio.sleep(max(0.0, given_up - loop.time()))
        self._process.lives()
        if answers is None:
            raise NoAnswer("no answer in time", sent=True)
        return answers

    async def _reach(self, commands: tuple[Command, ...]) -> list[Any] | None:
        """Return the answers; None where none comes. Raises NoAnswer where Redis refuses the connection."""
        world, scenario = self._world, self._world.scenario
        await asyncio.sleep(self._chance.uniform(0.0001, 0.005))
        away = scenario.away_at(world.now())
        if away is not None:
            self._away(away, commands)
            return None
        roll = self._chance.random() if world.now() < LOAD_SECONDS else 1.0
        if (roll := roll - scenario.command_lost) < 0:
            return None
        if (roll := roll - scenario.late) < 0:
            world.loop.call_later(self._chance.uniform(0, LATEST_SECONDS), self._execute_late, commands)
            return None
        answers = world.execute(self._process, commands)
        if self._dies():
            self._process.die()
        if roll - scenario.answer_lost < 0:
            return None
        await asyncio.sleep(self._chance.uniform(0.0001, 0.005))
        return answers

    def _dies(self) -> bool:
        return self._world.now() < LOAD_SECONDS and self._chance.random() < self._world.scenario.dies

    def _away(self, how: Away, commands: tuple[Command, ...]) -> None:
        if how is Away.KILLED:
            raise NoAnswer("connection refused", sent=False)
        if how is Away.STILL:
            self._world.received.append((self._process, commands))
        elif self._chance.random() < 0.5:
            self._world.execute(self._process, commands)

    def _execute_late(self, commands: tuple[Command, ...]) -> None:
        # Redis refuses what no longer fits. Where it was killed meanwhile, the connection is gone.
        if self._world.scenario.away_at(self._world.now()) is None:
            try:
                self._world.execute(self._process, commands)
            except RelayError as error:
                self._world.note(f"late commands of {self._process.name}: {error}")

    def subscriber(self, hear: Hear) -> Subscriber:
        return PulseConnection(self._world, self._process, hear)

    async def close(self) -> None:
        """Nothing is open."""


class PulseConnection(Subscriber):
    """A connection for pulses."""

    def __init__(self, world: World, process: Process, hear: Hear) -> None:
        self._world = world
        self._process = process
        self._hear = hear
        self._channels: set[str] = set()
        self._heard: deque[tuple[str, bytes | None]] = deque()
        self._news = asyncio.Event()
        self._broken = False
        world.ears.append(self)

    async def subscribe(self, *channels: str) -> None:
        await self._reaches()
        self._channels.update(channels)
        for channel in channels:
            self.hear(channel, None)

    async def unsubscribe(self, *channels: str) -> None:
        await self._reaches()
        self._channels.difference_update(channels)

    async def _reaches(self) -> None:
        self._process.lives()
        await asyncio.sleep(0.001)
        if self._broken or self._world.scenario.away_at(self._world.now()) is not None:
            raise NoAnswer("the connection for pulses broke", sent=False)

    async def receive(self) -> None:
        while True:
            while not self._heard:
                if self._broken:
                    raise NoAnswer("the connection for pulses broke", sent=False)
                self._news.clear()
                await self._news.wait()
            self._process.lives()
            self._hear(*self._heard.popleft())

    def hear(self, channel: str, content: bytes | None) -> bool:
        """Receive a pulse, where this is subscribed to its channel."""
        if self._broken or channel not in self._channels:
            return False
        self._heard.append((channel, content))
        self._news.set()
        return True

    def break_off(self) -> None:
        self._broken = True
        self._heard.clear()
        self._news.set()

    async def close(self) -> None:
        self.break_off()
        if self in self._world.ears:
            self._world.ears.remove(self)
