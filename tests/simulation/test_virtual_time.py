"""The clock of virtual time moves on, as a real one does while a program runs."""

from __future__ import annotations

import asyncio

import pytest

from simulation import virtual_time
from simulation.virtual_time import RunStalled


def test_a_program_that_waits_again_for_the_same_time_reaches_it() -> None:
    """A timer that is due within the clock's resolution fires at once, while its time has not come."""
    waits: list[float] = []

    async def program() -> None:
        loop = asyncio.get_running_loop()
        loop.call_at(3.2205925096006935, asyncio.Event().set)
        await asyncio.sleep(3.2205925096006935)
        until = 3.220592509600694
        while loop.time() < until:
            waits.append(loop.time())
            news = asyncio.Event()
            loop.call_at(until, news.set)
            await news.wait()

    virtual_time.run(1, program)
    assert len(waits) == 1


def test_a_program_that_never_waits_for_time_ends_the_run_with_an_error() -> None:
    def again() -> None:
        asyncio.get_running_loop().call_soon(again)

    async def program() -> None:
        again()
        await asyncio.Event().wait()

    with pytest.raises(RunStalled, match="the clock stood still"):
        virtual_time.run(1, program)
