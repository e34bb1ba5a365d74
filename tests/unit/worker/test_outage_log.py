"""What a worker logs while the broker refuses it, or its certificate is refused, under virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from osrdyne_amqp.errors import AccessRefused, TlsFailed
from osrdyne_protocol.worker_environment import WorkerEnvironment
from osrdyne_worker import loop as worker_loop
from osrdyne_worker.loop import Worker, WorkerOptions
from osrdyne_worker.session import WorkerSession

pytestmark = pytest.mark.looptime


async def test_a_reason_that_stays_is_logged_when_it_begins_and_then_once_a_minute(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def refused(*_: Any) -> Any:
        raise TlsFailed("the server's certificate has expired")

    monkeypatch.setattr(WorkerSession, "open", refused)
    monkeypatch.setattr(worker_loop, "connect", refused)
    environment = WorkerEnvironment("id", "42", "core", "core-req-42", "core-activity", "amqps://user:password@nowhere")
    runner: Any = None
    worker = Worker(environment, runner, WorkerOptions())
    stop = asyncio.Event()
    asyncio.get_running_loop().call_later(150, stop.set)

    await worker.run(stop)

    logged = [
        record for record in caplog.records if "the broker" in record.message and "cannot be used" in record.message
    ]
    assert len(logged) == 3


async def test_a_broker_that_refuses_what_a_worker_consumes_cannot_be_used_until_it_does_not(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class LetIn(WorkerSession):
        """A session over which nothing may be consumed."""

        def __init__(self) -> None:
            pass

        async def consume(self, _: object, *, one_by_one: bool = False) -> None:
            raise AccessRefused("access to the queue is refused")

        async def close(self) -> None:
            pass

    async def opened(*_: Any) -> WorkerSession:
        return LetIn()

    async def refused(*_: Any) -> Any:
        raise TlsFailed("the server's certificate has expired")

    monkeypatch.setattr(WorkerSession, "open", opened)
    monkeypatch.setattr(worker_loop, "connect", refused)
    environment = WorkerEnvironment("id", "42", "core", "core-req-42", "core-activity", "amqps://user:password@nowhere")
    runner: Any = None
    stop = asyncio.Event()
    asyncio.get_running_loop().call_later(100, stop.set)

    await Worker(environment, runner, WorkerOptions()).run(stop)

    logged = [record.message.partition(";")[0] for record in caplog.records if record.message.startswith("the broker")]
    assert logged == ["the broker cannot be used", "the broker still cannot be used"]
