"""Listeners to notifications, for asyncio."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Self

from osrdyne_bus.aio.bus import AsyncBus
from osrdyne_bus.aio.serving.consumer import Consumer
from osrdyne_bus.engine import IncomingMessage
from osrdyne_bus.messages.wire import Notification, read_notification
from osrdyne_bus.targets import Priority, Target
from osrdyne_calls.handling import Outcome, Reject, Requeue, text_of
from osrdyne_protocol.events import REQUEUED
from osrdyne_protocol.statuses import ERROR, OK, REJECTED
from osrdyne_runtime import log_lines

log = log_lines.logger(__name__)

Listener = Callable[[Notification], None] | Callable[[Notification], Awaitable[None]]


class AsyncBusListener(Consumer):
    """Takes notifications to a target; each goes to one listener. Use it with `async with`."""

    def __init__(
        self,
        bus: AsyncBus,
        target: Target,
        handler: Listener,
        *,
        priorities: Sequence[Priority] = (Priority.INFO,),
        concurrency: int = 64,
        executor: concurrent.futures.Executor | None = None,
    ) -> None:
        """Prepare a listener. A notification is acknowledged when its handler ends.

        It goes back where the handler raises Requeue, and is rejected where it raises anything else.

        `executor`: where a plain handler runs instead of in threads. With processes, it is a function of a module.
        """
        super().__init__(bus, concurrency, f"osrdyne bus listener {target.topic}", executor, _heard, _failed)
        self._target = target
        self._handler = handler
        self._priorities = tuple(priorities)

    async def start(self, timeout: float | None = None) -> None:
        """Attach a subscription for each priority, as a server does, within `timeout` seconds, and raise as it does."""
        target = self._target

        def address_of(priority: Priority) -> Callable[[Any], str]:
            return lambda scheme: scheme.notifications(target, priority)

        await self._subscribe(list(map(address_of, self._priorities)), self._bus.settings.notification_credit, timeout)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    def _given_up(self, task: asyncio.Task[None]) -> None:
        """Nothing is to be said: its notification goes back with its link."""

    async def _handle(self, incoming: IncomingMessage) -> None:
        outcome = await self._run(self._handler, read_notification(incoming.envelope))
        if outcome.status == OK:
            incoming.accept()
        elif outcome.status == REQUEUED:
            incoming.release()
        elif outcome.status == REJECTED:
            incoming.reject("osrdyne:rejected", outcome.reason or "the handler rejected it")
        else:
            incoming.reject("osrdyne:handler-failed", outcome.reason or "")


def _heard(_: object) -> Outcome:
    return Outcome()


def _failed(notification: Notification, error: BaseException) -> Outcome:
    if isinstance(error, Requeue):
        return Outcome(REQUEUED)
    if isinstance(error, Reject):
        return Outcome(REJECTED, reason=text_of(error))
    log.error("the handler of a notification failed", extra={"event_type": notification.event_type}, exc_info=error)
    return Outcome(ERROR, reason=f"{type(error).__name__}: {text_of(error)}")
