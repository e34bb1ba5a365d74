"""A loop in a thread of its own: what other threads get from it, whatever ends meanwhile."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from functools import partial

import pytest

from osrdyne_calls.errors import ClientClosed
from osrdyne_runtime import portal as portals
from osrdyne_runtime.portal import Portal, ThreadBridge
from testbed.forked import in_fork
from testbed.waiting import PATIENCE_SECONDS, until

WHO = contextvars.ContextVar("WHO", default="")


class Context:
    """Notes what becomes of it."""

    def __init__(self) -> None:
        self.events: list[str] = []

    @asynccontextmanager
    async def entered(self) -> AsyncIterator[None]:
        self.events.append("entered")
        try:
            yield
        finally:
            await asyncio.sleep(0)
            self.events.append("left")


@pytest.fixture
def context() -> Context:
    return Context()


@pytest.fixture
def portal(context: Context) -> Iterator[Portal]:
    made = Portal("client", ClientClosed)
    made.open(context.entered())
    yield made
    made.close()


class Waits:
    """Work that never ends by itself."""

    def __init__(self) -> None:
        self.begun, self.cancelled = threading.Event(), threading.Event()

    async def work(self) -> None:
        self.begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.cancelled.set()


async def answer() -> int:
    await asyncio.sleep(0)
    return 42


def test_threads_get_what_their_work_returns_and_raises(portal: Portal, context: Context) -> None:
    async def fails() -> None:
        raise LookupError("no such row")

    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        assert list(threads.map(lambda _: portal.run(answer()), range(100))) == [42] * 100
    with pytest.raises(LookupError, match="no such row"):
        portal.run(fails())
    assert context.events == ["entered"]


def test_what_a_context_raises_is_raised_by_open_and_leaves_no_thread() -> None:
    def refuse() -> None:
        raise ConnectionRefusedError

    @asynccontextmanager
    async def refused() -> AsyncIterator[None]:
        refuse()
        yield

    portal, before = Portal("client", ClientClosed), set(threading.enumerate())
    with pytest.raises(ConnectionRefusedError):
        portal.open(refused())
    assert set(threading.enumerate()) <= before
    with pytest.raises(ClientClosed, match="opened before"):
        portal.open(refused())


def test_work_is_cancelled_when_its_time_is_over(portal: Portal) -> None:
    waits = Waits()
    with pytest.raises(TimeoutError):
        portal.run(waits.work(), timeout=0.01)
    until(waits.cancelled.is_set)


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_ends_a_wait_and_cancels_its_work(portal: Portal) -> None:
    waits = Waits()

    def interrupt() -> None:
        waits.begun.wait()
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        portal.run(waits.work())
    until(waits.cancelled.is_set)
    assert portal.run(answer()) == 42


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_while_it_is_opened_leaves_no_thread() -> None:
    waits = Waits()

    @asynccontextmanager
    async def hangs() -> AsyncIterator[None]:
        await waits.work()
        yield

    def interrupt() -> None:
        waits.begun.wait()
        os.kill(os.getpid(), signal.SIGINT)

    portal = Portal("client", ClientClosed)
    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        portal.open(hangs())
    assert not portal.is_running


def test_closing_ends_what_waits_in_other_threads_and_refuses_the_rest(portal: Portal, context: Context) -> None:
    waits = Waits()
    with concurrent.futures.ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(portal.run, waits.work())
        waits.begun.wait()
        portal.close()
        portal.close()
        with pytest.raises(ClientClosed, match="meanwhile"):
            waiting.result()
    assert context.events == ["entered", "left"]
    assert not portal.is_open
    assert not portal.is_running
    for refused in (lambda: portal.run(answer()), lambda: portal.put(lambda: None)):
        with pytest.raises(ClientClosed, match="open one with `with`"):
            refused()


def test_work_that_is_handed_over_while_it_closes_ends(context: Context) -> None:
    for _ in range(50):
        portal = Portal("client", ClientClosed)
        ended: list[bool] = []
        portal.open(context.entered())

        def ask(portal: Portal = portal, ended: list[bool] = ended) -> None:
            try:
                while True:
                    portal.run(answer())
            except ClientClosed:
                ended.append(True)

        threads = [threading.Thread(target=ask) for _ in range(3)]
        for thread in threads:
            thread.start()
        portal.close()
        for thread in threads:
            thread.join()
        assert ended == [True] * 3


def test_its_own_thread_closes_it_without_a_wait_and_cannot_wait_for_work(portal: Portal, context: Context) -> None:
    async def from_within() -> None:
        with pytest.raises(RuntimeError, match="use `await`"):
            portal.run(answer())
        portal.close()

    with suppress(ClientClosed):  # it may be cancelled before this thread hears that it is done
        portal.run(from_within())
    until(lambda: context.events == ["entered", "left"])


def test_a_loop_that_is_blocked_does_not_block_close(
    portal: Portal, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(portals, "CLOSE_SECONDS", 0.05)
    go, blocked = threading.Event(), threading.Event()
    portal.put(blocked.set)
    portal.put(partial(go.wait, 60.0))  # type: ignore[arg-type]
    blocked.wait()
    with caplog.at_level(logging.WARNING):
        portal.close()
    go.set()
    assert "blocks its loop" in caplog.text


def test_the_end_of_what_it_runs_may_take_the_time_that_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(portals, "CLOSE_SECONDS", 0.05)
    ended = threading.Event()

    @asynccontextmanager
    async def slow() -> AsyncIterator[None]:
        try:
            yield
        finally:
            await asyncio.sleep(0.5)
            ended.set()

    slowly = Portal("client", ClientClosed)
    slowly.open(slow())
    slowly.close(60.0)
    assert ended.is_set()


def test_a_signal_and_the_collector_may_come_while_work_is_handed_over(portal: Portal) -> None:
    with portal._lock:  # as the code that they interrupt has it
        portal.start(answer(), concurrent.futures.Future())
        portal.stop()


def test_a_fork_is_refused_and_ends_nothing_of_the_process_that_opened_it(portal: Portal) -> None:
    held, go = threading.Event(), threading.Event()

    def hold() -> None:
        with portal._lock:
            held.set()
            go.wait()

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait()
    found = [in_fork(lambda: portal.run(answer())), in_fork(lambda: portal.put(go.set))]
    in_fork(portal.close)
    assert not in_fork(lambda: portal.is_running)
    go.set()
    holder.join()
    assert [(error.kind, error.text[-300:].count("this client was opened")) for error in found] == [
        ("OtherProcess", 1)
    ] * 2
    assert portal.run(answer()) == 42


async def test_ctrl_c_while_the_loop_is_woken_keeps_no_later_action_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, ran = asyncio.get_running_loop(), asyncio.Event()
    bridge = ThreadBridge(loop)
    with monkeypatch.context() as interrupted:
        interrupted.setattr(loop, "call_soon_threadsafe", _interrupted)
        with pytest.raises(KeyboardInterrupt):
            bridge.put(lambda: None)
    bridge.put(ran.set)
    await asyncio.wait_for(ran.wait(), PATIENCE_SECONDS)


def _interrupted(*_: object) -> None:
    raise KeyboardInterrupt


def test_work_has_the_context_of_the_thread_that_asked_for_it(portal: Portal) -> None:
    async def seen() -> str:
        return WHO.get()

    def ask(who: str) -> set[str]:
        WHO.set(who)
        return {portal.run(seen()) for _ in range(50)}

    names = [f"thread {number}" for number in range(8)]
    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        assert list(threads.map(ask, names)) == [{name} for name in names]


def test_an_error_whose_truth_value_is_false_is_raised(portal: Portal) -> None:
    class Empty(Exception):
        def __len__(self) -> int:
            return 0

    async def fails() -> None:
        raise Empty

    with pytest.raises(Empty):
        portal.run(fails(), PATIENCE_SECONDS)


def test_a_context_is_left_in_full_where_the_end_comes_as_it_was_entered(context: Context) -> None:
    portal = Portal("client", ClientClosed)

    @asynccontextmanager
    async def stopped() -> AsyncIterator[None]:
        async with context.entered():
            portal.stop()
            yield

    with pytest.raises(ClientClosed):
        portal.open(stopped())
    assert context.events == ["entered", "left"]


def test_what_blocks_on_the_loop_holds_up_neither_ctrl_c_nor_the_end(portal: Portal) -> None:
    blocked, go = threading.Event(), threading.Event()

    def block() -> None:
        blocked.set()
        go.wait()

    def ask() -> None:
        with suppress(ClientClosed):
            portal.run(asyncio.to_thread(block))

    asked = threading.Thread(target=ask)
    asked.start()
    blocked.wait()
    try:
        portal.close()
        assert not portal.is_running
    finally:
        go.set()
        asked.join()


def test_threads_are_served_after_the_main_thread_has_ended() -> None:
    done = subprocess.run([sys.executable, "-c", OUTLIVED], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "[1]\n", "")


#: A program whose main thread ends first.
OUTLIVED = """
import asyncio, threading
from contextlib import asynccontextmanager
from osrdyne_calls.errors import ClientClosed
from osrdyne_runtime.portal import Portal

@asynccontextmanager
async def nothing():
    yield

portal = Portal("client", ClientClosed)
portal.open(nothing())

def work():
    threading.main_thread().join()
    print(portal.run(asyncio.to_thread(list, [1])))

threading.Thread(target=work).start()
"""
