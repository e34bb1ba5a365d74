"""Calls, casts, fanouts and notifications, for asyncio."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

from osrdyne_bus.aio.bus import AsyncBus
from osrdyne_bus.envelopes import Header
from osrdyne_bus.errors import DeliveryFailure, MessagingTimeout, SendTimedOut
from osrdyne_bus.targets import Priority, Target
from osrdyne_bus.wire import (
    NO_HEADERS,
    BusRequest,
    Notification,
    class_name,
    notification_envelope,
    read_reply,
    request_envelope,
)
from osrdyne_client.replies import Reply


class AsyncBusClient:
    """Calls the servers of targets over a bus. Any number of clients share a bus."""

    def __init__(
        self,
        bus: AsyncBus,
        *,
        namespace: str = "",
        version: str = "1.0",
        allowed_errors: Iterable[type[Exception]] = (),
    ) -> None:
        """Prepare a client; nothing is sent.

        `namespace` and `version` are those of the endpoint that is called. `allowed_errors`: exceptions that are raised
        here when a handler raised them there. Each is made of one text. All others are a RemoteError.
        """
        self._bus = bus
        self._namespace = namespace
        self._version = version
        self._allowed = {class_name(kind): kind for kind in allowed_errors}

    async def call(
        self,
        target: Target,
        method: str,
        body: bytes = b"",
        *,
        timeout: float | None = None,
        headers: Mapping[str, Header] = NO_HEADERS,
        content_type: str | None = None,
    ) -> Reply:
        """Ask one server of a target, and return its answer; `timeout` in seconds, that of the bus by default.

        With `target.server` it is that server, otherwise any. The request carries the deadline, and no server begins
        after it.

        Raises RemoteError (a subclass for each status) or an allowed error where the answer is an error;
        MessagingTimeout; DeliveryFailure where no server took it, and, without a `timeout`, where none had credit for
        it in time; DeliveryRejected, OutcomeUnknown, LinkRefused, PeerLost, MessageTooLarge, NoFreeSlot, BusClosed.
        """
        within = self._bus.settings.call_timeout if timeout is None else timeout
        deadline = time.time() + within
        try:
            found = await self._bus.call(
                lambda scheme: scheme.shared(target) if target.server is None else scheme.server(target),
                lambda name, reply_to: request_envelope(
                    self._request(
                        method,
                        body,
                        headers=headers,
                        content_type=content_type,
                        deadline=deadline,
                        id=name,
                        reply_to=reply_to,
                    )
                ),
                within,
            )
        except SendTimedOut as error:
            raise _timed_out(error, given=timeout is not None) from error
        answer = read_reply(found, self._allowed)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def cast(
        self,
        target: Target,
        method: str,
        body: bytes = b"",
        *,
        timeout: float | None = None,
        headers: Mapping[str, Header] = NO_HEADERS,
        content_type: str | None = None,
    ) -> None:
        """Send a request without a reply to one server of a target, and wait until it is acknowledged.

        Through a mesh the server acknowledges it, and a broker does so once it keeps it. Raises as `call`, and no
        RemoteError.
        """
        request = self._request(method, body, headers=headers, content_type=content_type)
        within = self._bus.settings.call_timeout if timeout is None else timeout
        try:
            await self._bus.send(
                lambda scheme: scheme.shared(target) if target.server is None else scheme.server(target),
                request_envelope(request),
                within,
            )
        except SendTimedOut as error:
            raise _timed_out(error, given=timeout is not None) from error

    async def fanout(
        self,
        target: Target,
        method: str,
        body: bytes = b"",
        *,
        timeout: float | None = None,
        headers: Mapping[str, Header] = NO_HEADERS,
        content_type: str | None = None,
    ) -> None:
        """Send a request without a reply to all servers of a target; the mesh or broker acknowledges it. As `cast`."""
        request = self._request(method, body, headers=headers, content_type=content_type)
        within = self._bus.settings.call_timeout if timeout is None else timeout
        try:
            await self._bus.send(lambda scheme: scheme.fanout(target), request_envelope(request), within)
        except SendTimedOut as error:
            raise _timed_out(error, given=timeout is not None) from error

    async def notify(
        self,
        target: Target,
        event_type: str,
        body: bytes = b"",
        *,
        priority: Priority = Priority.INFO,
        publisher: str | None = None,
        timeout: float | None = None,
        headers: Mapping[str, Header] = NO_HEADERS,
        content_type: str | None = None,
    ) -> None:
        """Say to one of the listeners of a target what happened. A broker keeps it until there is one. As `cast`."""
        notification = Notification(event_type, body, publisher, headers, content_type)
        within = self._bus.settings.notification_timeout if timeout is None else timeout
        try:
            await self._bus.send(
                lambda scheme: scheme.notifications(target, priority), notification_envelope(notification), within
            )
        except SendTimedOut as error:
            raise _timed_out(error, given=timeout is not None) from error

    def _request(self, method: str, body: bytes, **given: Any) -> BusRequest:
        return BusRequest(method, body, self._namespace, self._version, **given)


def _timed_out(error: SendTimedOut, *, given: bool) -> MessagingTimeout | DeliveryFailure:
    """Return the error of the specification: a time-out only where the caller gave a time."""
    return MessagingTimeout(str(error)) if given else DeliveryFailure(str(error))
