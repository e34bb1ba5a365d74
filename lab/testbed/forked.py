"""Forks of a test's own process: what an action does there, with a bound on how long it may take."""

from __future__ import annotations

import os
import pickle
import select
import signal
import time
import traceback
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

from testbed.waiting import PATIENCE_SECONDS


class RaisedError(NamedTuple):
    """What an action raised in the fork."""

    kind: str
    text: str


def in_fork(action: Callable[[], Any]) -> Any:
    """Run an action in a fork of this process; return what it returned, or `RaisedError`.

    The fork ends at once after it, without any clearing up. Raises AssertionError where it hangs, and kills it.
    """
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        # Python 3.12 warns of every fork of a process with threads: it is what these tests are about.
        warnings.simplefilter("ignore", DeprecationWarning)
        process = os.fork()
    if process == 0:
        _do(action, writing)
    os.close(writing)
    try:
        return pickle.loads(_read(reading))  # noqa: S301 - from ourselves
    finally:
        os.close(reading)
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)


def _do(action: Callable[[], Any], writing: int) -> None:
    try:
        try:
            result = pickle.dumps(action())
        except BaseException as error:  # noqa: BLE001 - the test judges it
            traceback.print_exc()
            result = pickle.dumps(RaisedError(type(error).__name__, str(error)))
        with os.fdopen(writing, "wb") as pipe:
            pipe.write(result)
    finally:
        os._exit(0)


def _read(reading: int) -> bytes:
    parts: list[bytes] = []
    until = time.monotonic() + PATIENCE_SECONDS
    while True:
        ready, _, _ = select.select([reading], [], [], max(0.0, until - time.monotonic()))
        if not ready:
            raise AssertionError("the fork hangs")
        if not (part := os.read(reading, 65_536)):
            return b"".join(parts)
        parts.append(part)
