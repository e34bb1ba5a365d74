"""Listeners to notifications, for asyncio."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Self

from osrdyne_bus.aio.bus import AsyncBus
from osrdyne_bus.aio.taking import Taking
from osrdyne_bus.engine import Incoming
from osrdyne_bus.messages.wire import Notification, read_notification
from osrdyne_bus.targets import Priority, Target
from osrdyne_calls.handling import Reject, Requeue

log = logging.getLogger(__name__)

Listener = Callable[[Notification], None] | Callable[[Notification], Awaitable[None]]


class AsyncBusListener(Taking):
    """Takes notifications to a target; each goes to one listener. Use it with `async with`."""

    def __init__(
        self,
        bus: AsyncBus,
        target: Target,
        handler: Listener,
        *,
        priorities: Sequence[Priority] = (Priority.INFO,),
        concurrency: int = 64,
    ) -> None:
        """Prepare a listener. A notification is acknowledged when its handler ends.

        It goes back where the handler raises Requeue, and is rejected where it raises anything else.
        """
        super().__init__(bus, concurrency, f"osrdyne bus listener {target.topic}")
        self._target = target
        self._handler = handler
        self._priorities = tuple(priorities)

    async def start(self) -> None:
        """Attach a subscription for each priority. Raises LinkRefused, PeerLost, BusClosed."""
        target = self._target

        def address_of(priority: Priority) -> Callable[[Any], str]:
            return lambda scheme: scheme.notifications(target, priority)

        await self._subscribe(list(map(address_of, self._priorities)), self._bus.settings.notification_credit)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    def _given_up(self, task: asyncio.Task[None]) -> None:
        """Nothing is to be said: its notification goes back with its link."""

    async def _handle(self, incoming: Incoming) -> None:
        notification = read_notification(incoming.envelope)
        _, error = await self._run(self._handler, notification)
        if error is None:
            incoming.accept()
        elif isinstance(error, Requeue):
            incoming.release()
        elif isinstance(error, Reject):
            incoming.reject("osrdyne:rejected", str(error) or "the handler rejected it")
        else:
            log.error("the handler of notification %r failed", notification.event_type, exc_info=error)
            incoming.reject("osrdyne:handler-failed", f"{type(error).__name__}: {error}")
