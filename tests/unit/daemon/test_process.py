"""The daemon as a process: how what it runs ends."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from osrdyne import process

pytestmark = pytest.mark.looptime


async def test_a_task_that_forgets_that_it_was_cancelled_is_cancelled_again() -> None:
    async def forgetful() -> None:
        for _ in range(2):
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(1_000_000)
        await asyncio.sleep(1_000_000)

    async with asyncio.timeout(100), process._task(forgetful(), "forgetful") as task:
        await asyncio.sleep(0)
    assert task.cancelled()
