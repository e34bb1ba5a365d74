"""Calls, casts, fanouts and notifications, for asyncio."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace

from osrdyne_bus.aio.bus import AsyncBus
from osrdyne_bus.errors import DeliveryFailure, MessagingTimeout, SendTimedOut, UnsendableMessage
from osrdyne_bus.messages.envelopes import Header, checked_body, checked_headers
from osrdyne_bus.messages.wire import (
    NO_HEADERS,
    BusRequest,
    Notification,
    notification_envelope,
    read_reply,
    request_envelope,
)
from osrdyne_bus.targets import Priority, Target
from osrdyne_calls.handling import class_name
from osrdyne_calls.replies import Reply
from osrdyne_protocol.durations import timeout_of


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
        """Ask one server of a target, and return its answer; `timeout` in seconds, that of the bus by default, and
        `math.inf` for no end.

        With `target.server` it is that server, otherwise any. The request carries the deadline, and no server begins
        after it.

        Raises RemoteError (a subclass for each status) or an allowed error where the answer is an error;
        MessagingTimeout; DeliveryFailure where no server took it, and, without a `timeout`, where none had credit for
        it in time; DeliveryRejected, OutcomeUnknown, LinkRefused, PeerLost, MessageTooLarge, NoFreeSlot, BusClosed;
        UnsendableMessage and InvalidTimeout for what cannot be sent; OtherProcess in a fork.
        """
        within = self._within(timeout, self._bus.settings.call_timeout)
        deadline = None if within == math.inf else time.time() + within
        # All is checked before a slot is taken, a link is attached or a queue is made.
        request = self._request(method, body, headers=headers, content_type=content_type, deadline=deadline)
        try:
            found = await self._bus.call(
                lambda scheme: scheme.shared(target) if target.server is None else scheme.server(target),
                lambda name, reply_to: request_envelope(replace(request, id=name, reply_to=reply_to)),
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

        Through a mesh the server acknowledges it, and a broker does so once it keeps it. Over a mesh it carries its
        deadline, and no server begins after that. Raises as `call`, and no RemoteError.
        """
        request = self._request(method, body, headers=headers, content_type=content_type)
        within = self._within(timeout, self._bus.settings.call_timeout)
        # A router may hold it until its sender has left. What a broker keeps is for whatever server comes.
        in_time = request if within == math.inf else replace(request, deadline=time.time() + within)
        try:
            await self._bus.send(
                lambda scheme: scheme.shared(target) if target.server is None else scheme.server(target),
                lambda scheme: request_envelope(in_time if scheme.routed else request),
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
        """Send a request without a reply to all servers of a target. As `cast`, and with other acknowledgements.

        A broker acknowledges it. Over a mesh no one does: this returns when it has left, as one server that is slow
        would hold up all others. Without a server it fails in its time.
        """
        request = self._request(method, body, headers=headers, content_type=content_type)
        within = self._within(timeout, self._bus.settings.call_timeout)
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
        _check_text(event_type=event_type, publisher=publisher, content_type=content_type)
        notification = Notification(event_type, checked_body(body), publisher, checked_headers(headers), content_type)
        within = self._within(timeout, self._bus.settings.notification_timeout)
        try:
            await self._bus.send(
                lambda scheme: scheme.notifications(target, priority), notification_envelope(notification), within
            )
        except SendTimedOut as error:
            raise _timed_out(error, given=timeout is not None) from error

    def _within(self, timeout: float | None, default: float) -> float:
        return timeout_of(default if timeout is None else timeout)

    def _request(
        self,
        method: str,
        body: bytes,
        *,
        headers: Mapping[str, Header],
        content_type: str | None,
        deadline: float | None = None,
    ) -> BusRequest:
        _check_text(method=method, content_type=content_type)
        return BusRequest(
            method,
            checked_body(body),
            self._namespace,
            self._version,
            headers=checked_headers(headers),
            content_type=content_type,
            deadline=deadline,
        )


def _check_text(**texts: str | None) -> None:
    """Raise UnsendableMessage for what is not text that a message can hold."""
    for name, text in texts.items():
        if text is not None and not isinstance(text, str):
            raise UnsendableMessage(f"{name} is text, not {type(text).__name__}; nothing was sent")
    checked_headers({name: text for name, text in texts.items() if text is not None})


def _timed_out(error: SendTimedOut, *, given: bool) -> MessagingTimeout | DeliveryFailure:
    """Return the error of the specification: a time-out only where the caller gave a time."""
    return MessagingTimeout(str(error), wait=error.wait) if given else DeliveryFailure(str(error))
