"""How a process reaches the model of Redis: what is lost, comes late or breaks on the way, and where a process dies."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from osrdyne_relay import Relay
from osrdyne_relay.errors import RelayError
from osrdyne_relay.redis.names import CLAIM
from osrdyne_relay.redis.port import Away as NoAnswer
from osrdyne_relay.redis.port import Command, Hear, RedisPort, Subscriber
from simulation.relay.scenario import LOAD_SECONDS, Away

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
        self._awake = asyncio.Event()
        self._awake.set()
        self._world = world
        #: Set while it claims a request.
        self.claims = asyncio.Event()
        #: Called when it dies.
        self.at_end: list[Callable[[], None]] = []

    async def runs(self) -> None:
        """Wait while it stands still. Ends the task when it is dead."""
        await self._awake.wait()
        if self.dead:
            raise asyncio.CancelledError

    def stand_still(self, seconds: float) -> None:
        self._awake.clear()
        asyncio.get_running_loop().call_later(seconds, self._awake.set)

    def die(self) -> None:
        """End at once: nothing of it reaches Redis from here on."""
        if not self.dead:
            self.dead = True
            self._awake.set()
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
        await self._process.runs()
        world, scenario = self._world, self._world.scenario
        if self._dies():
            self._process.die()
            raise asyncio.CancelledError
        await asyncio.sleep(self._chance.uniform(0.0001, 0.005))
        away = scenario.away_at(world.now())
        if away is not None:
            await self._away(away, commands)
        roll = self._chance.random() if world.now() < LOAD_SECONDS else 1.0
        if (roll := roll - scenario.command_lost) < 0:
            await self._no_answer()
        if (roll := roll - scenario.late) < 0:
            asyncio.get_running_loop().call_later(self._chance.uniform(0, LATEST_SECONDS), self._execute_late, commands)
            await self._no_answer()
        answers = world.execute(self._process, commands)
        if self._dies():
            self._process.die()
        if roll - scenario.answer_lost < 0:
            await self._no_answer()
        await asyncio.sleep(self._chance.uniform(0.0001, 0.005))
        await self._process.runs()
        return answers

    def _dies(self) -> bool:
        return self._world.now() < LOAD_SECONDS and self._chance.random() < self._world.scenario.dies

    async def _away(self, how: Away, commands: tuple[Command, ...]) -> None:
        if how is Away.KILLED:
            raise NoAnswer("connection refused", sent=False)
        if how is Away.STILL:
            self._world.received.append((self._process, commands))
        elif self._chance.random() < 0.5:
            self._world.execute(self._process, commands)
        await self._no_answer()

    async def _no_answer(self) -> None:
        await asyncio.sleep(ANSWER_TIMEOUT_SECONDS)
        await self._process.runs()
        raise NoAnswer("no answer in time", sent=True)

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
        await self._process.runs()
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
            await self._process.runs()
            # It may have been broken off meanwhile.
            if self._heard:
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
