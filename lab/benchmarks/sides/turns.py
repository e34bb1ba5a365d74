"""How a client side gets its tasks, and what all of them send."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from osrdyne_relay import RelaySettings

#: 100 bytes, echoed.
BODY = bytes(range(100))
URI_VARIABLE = "BENCHMARK_URI"

#: Makes calls for so many seconds, so many at once; returns how many were answered, and how they were, in seconds.
Turn = Callable[[float, int], Awaitable[tuple[int, float]]]


def options() -> dict[str, Any]:
    """Return what this side was started with."""
    found: dict[str, Any] = json.loads(sys.argv[1])
    return found


def uri() -> str:
    """Return the broker's address for this side."""
    return os.environ[URI_VARIABLE]


def relay_settings() -> RelaySettings:
    """Return the settings of a node of the relay: the address, and defaults."""
    return RelaySettings.from_mapping({"redis": {"url_file": options()["address_file"]}})


def check(answer: object) -> None:
    """Raise AssertionError for an answer that is not an echo."""
    if answer != BODY:
        raise AssertionError("an answer is not what was sent")


async def serve(turn: Turn) -> None:
    """Make a turn for each line, until standard input ends."""
    while line := await asyncio.to_thread(sys.stdin.readline):
        seconds, outstanding = line.split()
        cpu = time.process_time()
        calls, took = await turn(float(seconds), int(outstanding))
        print(json.dumps({"calls": calls, "seconds": took, "cpu": time.process_time() - cpu}), flush=True)


async def in_coroutines(call: Callable[[], Awaitable[bytes]], seconds: float, outstanding: int) -> tuple[int, float]:
    """Make a turn of a client whose calls are awaited: each caller waits for its answer, and calls again."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    until = began + seconds

    async def caller() -> int:
        calls = 0
        while loop.time() < until:
            check(await call())
            calls += 1
        return calls

    counts = await asyncio.gather(*(caller() for _ in range(outstanding)))
    return sum(counts), loop.time() - began


async def in_threads(call: Callable[[], object], seconds: float, outstanding: int) -> tuple[int, float]:
    """Make a turn of a client whose calls block, in a thread for each call at a time."""
    began = time.perf_counter()

    def caller(_: int) -> int:
        calls = 0
        while time.perf_counter() < began + seconds:
            check(call())
            calls += 1
        return calls

    with ThreadPoolExecutor(outstanding) as threads:
        counts = list(threads.map(caller, range(outstanding)))
    return sum(counts), time.perf_counter() - began
