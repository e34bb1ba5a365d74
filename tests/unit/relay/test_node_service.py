"""Which workers count as gone on a node. Under virtual time."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from osrdyne_relay.http.node_service import NodeService

pytestmark = pytest.mark.looptime


class Request:
    """A request in hand."""

    id, endpoint, abandoned = "1", "e", None

    def __init__(self) -> None:
        self.failed: list[str] = []

    async def fail(self, reason: str) -> None:
        self.failed.append(reason)


@pytest.mark.parametrize(("stood", "silent"), [(0.0, True), (300.0, False)])
async def test_time_in_which_the_node_stood_still_does_not_count_as_silence_of_a_worker(
    stood: float, silent: bool
) -> None:
    settings: Any = SimpleNamespace(worker_gone_after=60.0, forget_after=600.0)
    relay: Any = SimpleNamespace()
    access: Any = SimpleNamespace()
    service, request, loop = NodeService(relay, access, settings), Request(), asyncio.get_running_loop()
    collected: Any = request
    service.state.open("a", 10)
    service.state.take(collected, "a", service._clock())
    sweeping = asyncio.ensure_future(service._sweep_always())
    await asyncio.sleep(30.0)
    # The process stood still: time has passed, and what the worker said meanwhile was not read.
    service._now = lambda: loop.time() + stood
    await asyncio.sleep(5.0 if stood else 32.0)
    assert bool(request.failed) is silent
    # It counts again from then on.
    await asyncio.sleep(60.0)
    assert request.failed
    sweeping.cancel()
