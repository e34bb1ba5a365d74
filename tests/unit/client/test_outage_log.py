"""What a client logs while the broker's certificate is refused, under virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from osrdyne_amqp.errors import TlsFailed
from osrdyne_client.dispatcher import ClientOptions, Dispatcher

pytestmark = pytest.mark.looptime


async def test_a_reason_that_stays_is_logged_when_it_begins_and_then_once_a_minute(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    options = ClientOptions(
        slots=4, timeout=60.0, connect_timeout=9.0, confirm=True, reply="queue", max_body=9, resend=True, name="test"
    )
    core = Dispatcher("amqps://user:password@nowhere", "core", options)
    core._loop = asyncio.get_running_loop()
    tries: list[float] = []

    async def refused() -> Any:
        tries.append(core._loop.time())
        raise TlsFailed("the server's certificate has expired")

    monkeypatch.setattr(core, "_connect", refused)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(150):
            await core._connect_again()

    logged = [record for record in caplog.records if "cannot be used" in record.message]
    assert len(logged) == 3
    # Its pauses have grown to the longest.
    assert len(tries) < 150 / 2.5 + 10
