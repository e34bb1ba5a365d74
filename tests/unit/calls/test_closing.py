"""An end that takes too long goes on without its caller. Under virtual time."""

from __future__ import annotations

import asyncio

import pytest

from osrdyne_calls.closing import in_time

pytestmark = pytest.mark.looptime


class End:
    """Takes some seconds, and notes how it ended."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.said = ""

    async def work(self) -> None:
        try:
            await asyncio.sleep(self.seconds)
        except asyncio.CancelledError:
            self.said = "cancelled"
            raise
        self.said = "done"


async def test_an_end_in_time_is_waited_for() -> None:
    end = End(0.5)
    assert await in_time(end.work(), 1.0)
    assert end.said == "done"


async def test_an_end_that_takes_longer_is_left_and_goes_on() -> None:
    end, began = End(5.0), asyncio.get_running_loop().time()
    assert not await in_time(end.work(), 1.0)
    assert asyncio.get_running_loop().time() - began == 1.0
    assert end.said == ""
    await asyncio.sleep(4.0)
    assert end.said == "done"


async def test_the_error_of_an_end_is_its_callers() -> None:
    async def fails() -> None:
        raise OSError("broken")

    with pytest.raises(OSError, match="broken"):
        await in_time(fails(), 1.0)


def test_an_end_that_is_left_is_cancelled_with_its_loop() -> None:
    end = End(3600.0)

    async def main() -> None:
        await in_time(end.work(), 0.0)
        await asyncio.sleep(0)

    asyncio.run(main())
    assert end.said == "cancelled"
