"""The shifted wall clock: one process sees it, and no other clock moves."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from faults.clock import SHARED_MEMORY, Clock

PROGRAM = """
import asyncio, os, sys, time
async def threads():
    for _ in range(20):
        await asyncio.to_thread(os.getpid)
for _ in sys.stdin:
    began = time.monotonic()
    asyncio.run(threads())
    print(time.time(), time.monotonic(), time.monotonic() - began, flush=True)
"""


def test_only_the_wall_clock_of_the_process_moves_and_moves_back(tmp_path: Path) -> None:
    clock = Clock(tmp_path)
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        env={"PATH": os.environ["PATH"], **clock.variables},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        found = []
        for shift in (0, 3600, -3600, 0):
            clock.shift(shift)
            process.stdin.write("\n")
            process.stdin.flush()
            wall, monotonic, waited = (float(word) for word in process.stdout.readline().split())
            found.append((round((wall - time.time()) / 60), abs(monotonic - time.monotonic()) < 60, waited < 5))
        process.kill()
    clock.tidy(process.pid)
    assert found == [(0, True, True), (60, True, True), (-60, True, True), (0, True, True)]
    assert not list(SHARED_MEMORY.glob(f"*faketime*_{process.pid}"))
