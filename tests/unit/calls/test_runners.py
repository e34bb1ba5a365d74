"""Where plain handlers run: threads that begin when they are needed, and executors."""

from __future__ import annotations

import asyncio
import gc
import operator
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from osrdyne_calls.handling import Outcome, Request, invoke
from osrdyne_calls.runners import InExecutor, InThreads, OnLoop, Runner, is_async, runner_of
from testbed.waiting import PATIENCE_SECONDS, until_async

REQUEST = Request("key", b"body", {}, "id", redelivered=False, deadline=None)


def begin(runner: Runner, run: Callable[[], Any]) -> asyncio.Future[Any]:
    done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    runner.start(run, done.set_result)  # type: ignore[arg-type]
    return done


def handler_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("osrdyne handler")}


async def test_threads_begin_when_they_are_needed_and_are_no_more_than_there_may_be() -> None:
    before = handler_threads()  # of other tests, which may end meanwhile
    runner = InThreads(operator.call, 3)
    for _ in range(5):  # one after the other needs one thread
        await begin(runner, Outcome)
    assert len(handler_threads() - before) == 1

    go = threading.Event()
    busy = [begin(runner, go.wait) for _ in range(5)]
    assert len(handler_threads() - before) == 3
    go.set()
    await asyncio.gather(*busy)
    runner.close()
    await until_async(lambda: not handler_threads() - before)


async def test_a_request_that_hangs_costs_a_thread_and_holds_up_no_other() -> None:
    runner, hung = InThreads(operator.call, 1), threading.Event()
    hanging = begin(runner, hung.wait)
    waiting = begin(runner, Outcome)
    assert not await runner.end(REQUEST)
    assert await waiting == Outcome()
    hung.set()
    await hanging
    runner.close()


async def test_where_the_system_gives_no_more_threads_those_that_there_are_do_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runner, go = InThreads(operator.call, 9), threading.Event()
    first = begin(runner, go.wait)

    def refused(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refused)
    second = begin(runner, Outcome)
    go.set()
    assert (await first, await second) == (True, Outcome())
    runner.close()


async def test_threads_that_the_system_refused_begin_when_it_gives_them_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    runner, go = InThreads(operator.call, 3), threading.Event()

    def refused(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refused)
        busy = [begin(runner, go.wait) for _ in range(3)]
        go.set()
        await asyncio.gather(*busy)
    assert [record.getMessage().split(" threads=")[0] for record in caplog.records] == [
        "the system gives no more threads; requests wait for those there are"
    ]

    together = threading.Barrier(2)
    await asyncio.gather(*(begin(runner, partial(together.wait, PATIENCE_SECONDS)) for _ in range(2)))
    runner.close()


async def test_what_is_taken_back_does_not_run() -> None:
    runner, go, ran = InThreads(operator.call, 1), threading.Event(), threading.Event()
    first = begin(runner, go.wait)
    withdraw = runner.start(ran.set, lambda _: None)
    assert [withdraw(), withdraw()] == [True, False]
    go.set()
    await first
    await begin(runner, Outcome)
    assert not ran.is_set()
    runner.close()


async def test_a_handler_thread_that_waits_keeps_nothing_of_its_last_call() -> None:
    class Answer:
        pass

    runner = InThreads(operator.call, 1)
    answer: Answer | None = Answer()
    seen = weakref.ref(answer)
    assert await begin(runner, partial(getattr, answer, "__class__")) is Answer
    answer = None
    await until_async(lambda: gc.collect() >= 0 and seen() is None)
    runner.close()


def upper(request: Request) -> bytes:
    return request.body.upper()


async def test_an_executor_of_processes_runs_a_handler_of_a_module() -> None:
    with ProcessPoolExecutor(1) as executor:
        done: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        InExecutor(partial(invoke, upper), executor).start(REQUEST, done.set_result)
        assert await done == Outcome("ok", b"BODY")


async def test_a_request_that_a_shut_down_executor_dropped_ends_with_an_error() -> None:
    executor, go = ThreadPoolExecutor(1), threading.Event()
    runner = InExecutor(operator.call, executor)
    running = begin(runner, go.wait)
    dropped = begin(runner, Outcome)

    executor.shutdown(wait=False, cancel_futures=True)

    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert await dropped == Outcome("error", reason="the worker's executor failed: CancelledError")
    finally:
        go.set()
    assert await running


async def test_a_request_that_was_taken_back_from_an_executor_has_no_outcome() -> None:
    with ThreadPoolExecutor(1) as executor:
        runner, go, outcomes = InExecutor(operator.call, executor), threading.Event(), list[Any]()
        running = begin(runner, go.wait)
        withdraw = runner.start(Outcome, outcomes.append)

        assert [withdraw(), withdraw()] == [True, True]
        go.set()
        await running
        await begin(runner, Outcome)
        assert not outcomes


async def test_what_is_called_decides_whether_a_handler_runs_on_the_loop() -> None:
    class CountingHandler:
        async def __call__(self, request: Request) -> bytes:
            return request.body

    async def handle(request: Request) -> bytes:
        return request.body

    assert [is_async(handler) for handler in (handle, CountingHandler(), partial(handle), upper)] == [
        True,
        True,
        True,
        False,
    ]
    assert isinstance(runner_of(CountingHandler(), 1, None), OnLoop)


async def test_a_thread_goes_on_where_the_outcome_of_a_handler_cannot_be_read() -> None:
    def unreadable() -> Outcome:
        raise AttributeError("reason")

    runner = InThreads(operator.call, 1)
    async with asyncio.timeout(PATIENCE_SECONDS):
        for _ in range(3):
            outcome = await begin(runner, unreadable)
            assert (outcome.status, outcome.reason) == ("error", "the worker cannot read the outcome: AttributeError")
        assert await begin(runner, Outcome) == Outcome()
    runner.close()
