"""A reply that the broker crashes on while the client connects: the client takes another queue, under virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from osrdyne_amqp.errors import ConnectionLost
from osrdyne_client.connection import ClientConnection
from osrdyne_client.dispatcher import CRASHED, ClientOptions, Dispatcher

pytestmark = pytest.mark.looptime


async def test_a_client_whose_connection_ends_while_it_is_made_leaves_its_reply_queue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options = ClientOptions(slots=4, timeout=60.0, confirm=True, reply="queue", max_body=9, resend=True, name="test")
    core = Dispatcher("amqp://user:password@nowhere", "core", options)
    core._loop = asyncio.get_running_loop()
    core._queue = first = "reply-user-0"
    link, tried = object(), []

    async def opened(_: str, *, queue: str, **__: Any) -> Any:
        tried.append(queue)
        if queue == first:
            raise ConnectionLost("the broker closed the connection: 541 INTERNAL_ERROR", code=CRASHED)
        return link

    monkeypatch.setattr(ClientConnection, "open", opened)
    async with asyncio.timeout(60):
        assert await core._connect_again() is link

    assert tried == [first, first, core._queue]
