"""Calls that the broker answers, each with a timeout."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from osrdyne_amqp import awake
from osrdyne_amqp.connecting.wire import Wire
from osrdyne_amqp.errors import BrokerError, BrokerTimeout

#: Starts a call of pika's channel; its argument is the callback that pika calls with the answer.
Start = Callable[[Callable[[Any], None]], None]


class PendingCalls:
    """The calls of one channel that wait for their answer, each for `timeout` seconds. Pika sends them one by one."""

    def __init__(self, wire: Wire, timeout: float) -> None:
        self._wire = wire
        self._timeout = timeout
        self._reason: BrokerError | None = None
        self._waiting: set[asyncio.Future[Any]] = set()

    async def do(self, what: str, start: Start, *, late: Callable[[], None] | None = None) -> Any:
        """Do one call and return its answer. `late` runs when the answer comes after the caller has left.

        A call that timed out does not end the channel: a late answer is dropped, because a broker that has blocked
        this connection (an alarm) answers everything in the end.
        """
        if self._reason is not None:
            raise self._reason.again()
        future: asyncio.Future[Any] = self._wire.loop.create_future()

        def answered(answer: Any) -> None:
            if not future.done():
                future.set_result(answer)
            elif late is not None:
                late()

        try:
            start(answered)
        except Exception as error:  # noqa: BLE001 - pika refuses in many ways
            raise self._wire.explain(error, what) from None
        self._waiting.add(future)
        try:
            return await awake.result_of(future, self._timeout)
        except awake.NotInTime:
            raise BrokerTimeout(
                f"no answer to: {what}, within {self._timeout:g} s{self._wire.blocked_text()}; "
                "whether the broker will still do it is unknown"
            ) from None
        finally:
            self._waiting.discard(future)

    def fail(self, reason: BrokerError) -> None:
        """Fail all present and later calls: the channel has ended."""
        self._reason = reason
        for future in self._waiting:
            if not future.done():
                future.set_exception(reason.again())
