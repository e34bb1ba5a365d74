"""A process of the relay that stood still reads what Redis answered meanwhile, before it says that Redis is away."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from osrdyne_relay import CallTimedOut, Relay
from osrdyne_relay.redis.port import Command
from simulation.relay.connection import Connection, Process
from simulation.relay.scenario import ENDPOINTS, Kind, Scenario
from simulation.relay.world import SETTINGS, World, request
from simulation.virtual_time import run

#: When the process goes on, in seconds; and when the answers come that it waits for.
GOES_ON = 40.0
ANSWERED = GOES_ON + 0.001


class HeldConnection(Connection):
    """A Redis whose answers come late: of what it is asked after half a second, just after the process goes on."""

    async def _reach(self, commands: tuple[Command, ...]) -> list[Any] | None:
        answers = self._world.execute(self._process, commands)
        if (now := self._world.now()) > 0.5:
            await asyncio.sleep(max(0.0, ANSWERED - now))
        return answers


def test_a_call_whose_process_stood_still_waits_for_redis_before_it_says_that_it_is_away() -> None:
    async def program() -> None:
        world = World(Scenario(1, Kind.QUIET, (), pulses_lost=0.0), random.Random(1))
        process = Process("caller", world)
        process.relay = Relay(SETTINGS, redis=HeldConnection(world, process))

        async def live() -> None:
            async with process.relay:
                call = process.relay.start(ENDPOINTS[0], request(1), pickup_timeout=60.0, timeout=1.0)
                await call.response()

        task = process.spawn(live())
        # At the end of its time it has asked Redis, and waits for the answer until 1.8 s.
        await asyncio.sleep(1.5)
        process.stand_still(GOES_ON - world.now())
        with pytest.raises(CallTimedOut):
            await task

    run(1, program)
