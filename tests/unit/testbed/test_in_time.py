"""The bound of waits in tests: it sees what takes too long, and leaves out what the machine takes."""

from __future__ import annotations

import asyncio
import time
from functools import partial

import pytest

from testbed.in_time import OVER_SECONDS, Late, command_in_time, in_time

MORE_SECONDS = OVER_SECONDS + 1.0


async def test_what_takes_more_than_its_timeout_and_a_second_is_late() -> None:
    with pytest.raises(Late, match=r"which is more than its 0 s and 1 s"):
        await in_time(asyncio.sleep(MORE_SECONDS), 0.0)


async def test_what_raises_too_late_is_late_too() -> None:
    async def raises() -> None:
        await asyncio.sleep(MORE_SECONDS)
        raise OSError

    with pytest.raises(Late):
        await in_time(raises(), 0.0)


async def test_what_the_same_takes_without_a_peer_is_left_out() -> None:
    await in_time(asyncio.sleep(MORE_SECONDS), 0.0, alone=MORE_SECONDS)
    done = await command_in_time(["status", "--url", "http://127.0.0.1:1"], {}, 0.0, alone=partial(time.sleep, 0.0))
    assert done.code == 2
