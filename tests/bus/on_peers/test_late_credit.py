"""Credit that comes when a message's time is over."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from osrdyne_bus.engine.senders import SendLink
from osrdyne_bus.errors import SendTimedOut
from osrdyne_bus.messages.envelopes import Envelope

pytestmark = pytest.mark.looptime


class Link:
    """Proton's side of a link."""

    remote_max_message_size = 0
    target = remote_target = SimpleNamespace(address="a")
    drain_mode = False

    def __init__(self) -> None:
        self.credit = 0
        self.sent = 0

    def delivery_tag(self) -> str:
        return "1"

    def delivery(self, tag: str) -> Any:
        return SimpleNamespace(tag=tag, settle=lambda: None)

    def stream(self, data: bytes) -> None:
        self.sent += 1

    def advance(self) -> None:
        """Nothing more to do."""


@pytest.mark.parametrize(("stood", "sent"), [(3.0, 1), (6.0, 0)])
async def test_a_message_whose_time_was_over_before_credit_came_is_not_sent(stood: float, sent: int) -> None:
    loop, link = asyncio.get_running_loop(), Link()
    # The process stood still: time has passed, and no timer of it has run.
    clock = SimpleNamespace(
        call_at=loop.call_at, call_later=loop.call_later, create_future=loop.create_future, time=loop.time
    )
    owner: Any = SimpleNamespace(loop=clock, peer="p", flush_soon=lambda: None)
    sender = SendLink(owner, link, settled=True)
    sending = asyncio.ensure_future(sender.send(Envelope(b"question"), 5.0))
    await asyncio.sleep(1.0)
    clock.time = lambda: loop.time() - 1.0 + stood
    link.credit = 1
    sender.flowed()
    if sent:
        await sending
    else:
        with pytest.raises(SendTimedOut) as late:
            await sending
        assert not late.value.sent
    assert link.sent == sent


async def test_a_sender_that_waits_for_credit_says_so_once_and_how_long(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="osrdyne_bus")
    link = Link()
    owner: Any = SimpleNamespace(loop=asyncio.get_running_loop(), peer="amqp://p:5672", flush_soon=lambda: None)
    sender = SendLink(owner, link, settled=True)
    sending = [asyncio.ensure_future(sender.send(Envelope(b"question"), 50.0)) for _ in range(3)]
    await asyncio.sleep(4.0)
    link.credit = 3
    sender.flowed()
    await asyncio.gather(*sending)
    await sender.send(Envelope(b"question"), 50.0)

    assert [record.getMessage() for record in caplog.records] == [
        'messages wait for credit peer="amqp://p:5672" address="a"',
        'credit has come peer="amqp://p:5672" address="a" seconds=4.0',
    ]
