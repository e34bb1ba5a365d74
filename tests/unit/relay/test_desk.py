"""Which workers a node takes for gone. Under virtual time."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from osrdyne_relay.http.desk import Desk

pytestmark = pytest.mark.looptime


class Request:
    """A request in hand."""

    id, endpoint, abandoned = "1", "e", None

    def __init__(self) -> None:
        self.failed: list[str] = []

    async def fail(self, reason: str) -> None:
        self.failed.append(reason)


@pytest.mark.parametrize(("stood", "silent"), [(0.0, True), (300.0, False)])
async def test_the_time_for_which_a_node_stood_still_is_no_silence_of_a_worker(stood: float, silent: bool) -> None:
    settings: Any = SimpleNamespace(worker_gone_after=60.0, forget_after=600.0)
    relay: Any = SimpleNamespace()
    access: Any = SimpleNamespace()
    desk, request, loop = Desk(relay, access, settings), Request(), asyncio.get_running_loop()
    collected: Any = request
    desk.ledger.open("a", 10)
    desk.ledger.take(collected, "a", desk._clock())
    noticing = asyncio.ensure_future(desk._notice_always())
    await asyncio.sleep(30.0)
    # The process stood still: time has passed, and what the worker said meanwhile was not read.
    desk._now = lambda: loop.time() + stood
    await asyncio.sleep(5.0 if stood else 32.0)
    assert bool(request.failed) is silent
    # It counts again from then on.
    await asyncio.sleep(60.0)
    assert request.failed
    noticing.cancel()
