"""A process that stands still in virtual time does nothing, and then what asyncio would do."""

from __future__ import annotations

import asyncio
from contextvars import Context

from simulation import virtual_time
from simulation.virtual_time import Clock, VirtualLoop, context_of


def test_a_process_that_stands_still_takes_what_has_arrived_before_its_own_timers_that_are_due() -> None:
    done: list[tuple[str, float]] = []
    clock = Clock()

    class Wire:
        """What messages arrive at."""

        def arrive(self) -> None:
            done.append(("arrived", asyncio.get_running_loop().time()))

    async def process() -> None:
        for second in range(1, 6):
            asyncio.get_running_loop().call_at(second, done.append, (f"timer {second}", 0.0))
        await asyncio.sleep(10.0)
        done.append(("ends", asyncio.get_running_loop().time()))

    async def program() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        task = loop.create_task(process(), context=context_of(clock))
        loop.call_at(4.5, Wire().arrive, context=context_of(clock))
        loop.call_at(1.5, loop.stand_still, clock, context=Context())
        await asyncio.sleep(7.0)
        # Another process goes on meanwhile.
        assert [what for what, _ in done] == ["timer 1"]
        loop.go_on(clock)
        await task

    virtual_time.run(1, program)
    assert [what for what, _ in done] == ["timer 1", "arrived", *(f"timer {number}" for number in range(2, 6)), "ends"]
    assert done[1] == ("arrived", 7.0)
    assert done[-1] == ("ends", 10.0)
