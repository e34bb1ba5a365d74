"""A reply that the broker crashes on while the client connects: the client takes another queue, under virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from osrdyne_amqp import Connection
from osrdyne_amqp.connecting.opening import Destination, why_not_open
from osrdyne_amqp.errors import BrokerError, ConnectionLost
from osrdyne_client import dispatcher
from osrdyne_client.connection import CRASHED, ClientConnection, CrashedOnReplies
from osrdyne_client.dispatcher import ClientOptions, Dispatcher

pytestmark = pytest.mark.looptime
FIRST = "reply-user-0"


async def tried(monkeypatch: pytest.MonkeyPatch, *errors: BrokerError) -> list[str]:
    """Return the reply queues with which a client connects again, while these errors come, up to its success."""
    options = ClientOptions(
        slots=4, timeout=60.0, connect_timeout=9.0, confirm=True, reply="queue", max_body=9, resend=True, name="test"
    )
    core = Dispatcher("amqp://user:password@nowhere", "core", options)
    core._loop = asyncio.get_running_loop()
    core._queue = FIRST
    left, queues = list(errors), list[str]()

    async def opened(_: str, *, queue: str, **__: Any) -> object:
        queues.append(queue)
        if left:
            raise left.pop(0)
        return object()

    monkeypatch.setattr(ClientConnection, "open", opened)
    await core._connect_again()
    return queues


async def test_a_client_whose_reply_queue_cannot_be_consumed_leaves_it(monkeypatch: pytest.MonkeyPatch) -> None:
    crash = CrashedOnReplies("541 INTERNAL_ERROR", code=CRASHED)

    *before, last = await tried(monkeypatch, crash, crash)

    assert before == [FIRST] * dispatcher.CRASHES
    assert last != FIRST


async def test_a_client_that_is_not_let_in_keeps_its_reply_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    """RabbitMQ says so with the same code while the virtual host starts."""
    refused = why_not_open([], CRASHED, "INTERNAL_ERROR - the vhost is down", Destination("amqp://nowhere", None))
    assert refused.code == CRASHED

    assert await tried(monkeypatch, *[refused] * 5) == [FIRST] * 6


@pytest.mark.parametrize("code", [CRASHED, 404])
async def test_only_a_crash_after_the_client_was_let_in_is_one_on_its_replies(
    monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    class EndedConnection:
        async def channel(self, **_: object) -> object:
            raise ConnectionLost("it ended", code=code)

        async def close(self) -> None:
            """It has ended."""

    async def let_in(*_: object, **__: object) -> EndedConnection:
        return EndedConnection()

    monkeypatch.setattr(Connection, "open", let_in)

    with pytest.raises(ConnectionLost) as caught:
        await ClientConnection.open(
            "amqp://nowhere", name="x", confirm=True, queue=FIRST, on_reply=print, on_return=lambda *_: None
        )
    assert isinstance(caught.value, CrashedOnReplies) == (code == CRASHED)
