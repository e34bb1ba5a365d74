"""The base of both clients: requests in slots, published over the present link, answered, timed out, or sent again.

A link is an open `ClientConnection`. The dispatcher runs on one asyncio loop and serves both clients, which differ only
in the kind of future that they pass in. Reads replies and confirms, writes requests. Never blocks, starts no task and
makes no extra future for a call; one task keeps the link. A request whose confirm is outstanding when the link ends is
published again over the next link.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

from osrdyne_amqp import Channel, Message, Properties
from osrdyne_amqp.address import Address, present
from osrdyne_amqp.codec.arguments import checked_headers
from osrdyne_amqp.errors import AccessRefused, BrokerError, BrokerTimeout, NotFound, Returned, Unencodable
from osrdyne_calls.closing import CLOSE_SECONDS, in_time
from osrdyne_calls.errors import BodyTooLarge, CallError, CallTimeout, ClientClosed, ReplyAddressLost
from osrdyne_calls.limits import lifetime
from osrdyne_calls.replies import Reply
from osrdyne_calls.slots import Slots
from osrdyne_calls.waits import Wait
from osrdyne_client.calls import Future, PendingCall, State, failure, undeliverable
from osrdyne_client.connection import CRASHED, DIRECT_REPLY_TO, ClientConnection, CrashedOnReplies
from osrdyne_client.replies import read
from osrdyne_protocol import keys
from osrdyne_protocol.durations import timeout_of
from osrdyne_protocol.errors import OsrdyneError
from osrdyne_protocol.events import wall_ms
from osrdyne_protocol.headers import X_DEADLINE, X_PUBLISH_TIME, X_STATUS
from osrdyne_protocol.names import PoolNames, reply_queue
from osrdyne_runtime import log_lines
from osrdyne_runtime.forks import OwnerProcess
from osrdyne_runtime.outages import OutageLog
from osrdyne_runtime.retry import Retry

log = log_lines.logger(__name__)

#: Longest time to live that a broker accepts, in milliseconds.
LONGEST_EXPIRATION = 2**32 - 1
#: After how many crashes of the broker in a row the client leaves its reply queue: not all of them are due to a reply.
CRASHES = 2
#: First and longest pause before connecting again, in seconds; each is cut by up to half at random.
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.1, 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """Options of a client. The client's constructor has their defaults and explains them. Times are in seconds."""

    slots: int
    timeout: float
    connect_timeout: float
    confirm: bool
    reply: Literal["queue", "direct"]
    max_body: int
    resend: bool
    name: str


class Dispatcher:
    """Requests and their answers over one link at a time. All methods belong to the loop that ran `open`."""

    def __init__(self, uri: Address, pool: str, options: ClientOptions) -> None:
        if options.reply not in ("queue", "direct"):
            raise ValueError(f"reply={options.reply!r}; give 'queue' or 'direct'")
        self._timeout = timeout_of(options.timeout)
        timeout_of(options.connect_timeout)
        self._uri = uri
        self._options = options
        self._exchange = PoolNames(pool).request_exchange
        client = secrets.token_hex(8)
        self.slots: Slots[PendingCall] = Slots(options.slots, client)
        self._casts: dict[str, PendingCall] = {}
        self._cast_prefix = f"{client}-cast-"
        self._cast_count = 0
        self._user = ""
        #: The user that the broker has checked, where the address names it.
        self._named: str | None = None
        self._queue: str | None = None
        #: Connections in a row that the broker closed by a crash of its own, with no reply in between.
        self._crashes = 0
        self._link: ClientConnection | None = None
        self._trouble: BrokerError | None = None
        self._outage = OutageLog(log, "the broker")
        self._closed = True
        self._keeper: asyncio.Task[None] | None = None
        self._warned = False
        self._loop: asyncio.AbstractEventLoop
        #: Where it was opened.
        self._home: OwnerProcess | None = None

    @property
    def is_connected(self) -> bool:
        return self._link is not None and self._link.is_open and self.is_here

    @property
    def is_here(self) -> bool:
        """Whether it was not opened in a process of which this one is a fork."""
        return self._home is None or self._home.is_here

    def settle_here(self) -> None:
        """Have this process for the one that opens it. Raises OtherProcess."""
        self.check_here()
        self._home = OwnerProcess()

    def check_here(self) -> None:
        """Raise OtherProcess in a fork of the process that opened it."""
        if self._home is not None:
            self._home.check("this client")

    # --- life -----------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Connect for the first time. Raises BrokerError.

        Only the first request shows whether the pool exists: RabbitMQ 4.3 answers whether an object exists only to
        users that may configure it.
        """
        self.settle_here()
        if self._keeper is not None:
            raise RuntimeError("a client is opened once; make a new one")
        self._loop = asyncio.get_running_loop()
        self._link = await self._connect()
        self._closed = False
        self._keeper = asyncio.create_task(self._keep_linked(), name="osrdyne client: keep the link")

    async def close(self, timeout: float = CLOSE_SECONDS) -> None:
        """Fail waiting calls with ClientClosed, delete the reply queue, disconnect. Never raises; safe to repeat.

        Takes `timeout` seconds at most, whatever the broker does. Does nothing in a fork: the connection is the other
        process's.
        """
        if self._closed or not self.is_here:
            return
        self._closed = True
        self._fail_all(ClientClosed("the client was closed while this call waited"))
        await in_time(self._disconnect(timeout), timeout)

    async def _disconnect(self, timeout: float) -> None:
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        link, self._link = self._link, None
        if link is not None:
            await link.close(delete_queue=True, timeout=timeout)

    async def _connect(self) -> ClientConnection:
        uri = present(self._uri)
        with contextlib.suppress(ValueError):  # Connection.open raises an error for an unreadable URI
            parts = urlsplit(uri)
            self._user = unquote(parts.username or "guest")
            # With a certificate, the broker's user is the certificate's.
            own = parts.username is not None and "auth_mechanism" not in parts.query
            self._named = self._user if own else None
            if self._options.reply == "queue" and self._queue is None:
                self._queue = reply_queue(self._user)
        return await ClientConnection.open(
            uri,
            name=self._options.name,
            timeout=self._options.connect_timeout,
            confirm=self._options.confirm,
            queue=self._queue,
            on_reply=self._on_reply,
            on_return=self._on_return,
        )

    async def _keep_linked(self) -> None:
        try:
            while self._link is not None:
                self._trouble = await self._link.lost()
                old, self._link = self._link, None
                self._outage.failed(str(self._trouble), self._loop.time())
                self._fail_unanswerable(self._trouble, left=self._leave_queue(self._trouble))
                await old.close()
                self._link = await self._connect_again()
                self._outage.over(self._loop.time(), broker=self._link.where)
                self._send_unsent()
        except Exception as error:
            log.exception("the client cannot go on")
            self._closed = True
            self._fail_all(ClientClosed(f"the client failed: {error!r}"))

    async def _connect_again(self) -> ClientConnection:
        retry = Retry(first=FIRST_PAUSE_SECONDS, limit=LONGEST_PAUSE_SECONDS)
        while True:
            await asyncio.sleep(retry.failed())
            try:
                return await self._connect()
            except BrokerError as error:
                self._trouble = error
                # Not where it lets no client in, as while its virtual host starts: the reply queue may be good.
                if isinstance(error, CrashedOnReplies) and self._leave_queue(error):
                    self._fail_unanswerable(error, left=True)
                self._outage.failed(str(error), self._loop.time())

    # --- requests -------------------------------------------------------------------------------------------

    def request(
        self,
        key: str,
        body: bytes,
        future: Future,
        *,
        wants_reply: bool,
        timeout: float | None = None,
        headers: Mapping[str, Any] | None = None,
        deadline: bool = True,
    ) -> PendingCall:
        """Send a request; `future` gets its `Reply`, or None once a cast is accepted, or the error.

        Raises errors of the request itself, and then nothing of it is left here: InvalidKey, BodyTooLarge, Unencodable,
        InvalidTimeout, NoFreeSlot, ClientClosed, OtherProcess.
        """
        self.check_here()
        if self._closed:
            raise ClientClosed("the client is closed; open one with `async with` or `with`")
        # All is checked before a slot is taken: a call that raised must not be sent by the next link.
        key, body, fields = keys.decode(key), self._checked(body), checked_headers(headers)
        timeout = self._timeout if timeout is None else timeout_of(timeout)
        now = self._loop.time()
        call = PendingCall(key, body, future, timeout, wants_reply)
        if deadline and timeout != math.inf:
            lives = lifetime(timeout)
            fields[X_DEADLINE] = int((time.time() + lives) * 1000)
            call.expires = now + lives
        if wants_reply:
            fields[X_PUBLISH_TIME] = 0  # until it leaves
            call.correlation_id = self.slots.take(call, now=now, deadline=now + timeout)
        else:
            self._cast_count += 1
            call.correlation_id = f"{self._cast_prefix}{self._cast_count:x}"
            self._casts[call.correlation_id] = call
        try:
            call.properties = Properties(
                headers=fields or None,
                delivery_mode=2,
                correlation_id=call.correlation_id,
                reply_to=(self._queue or DIRECT_REPLY_TO) if wants_reply else None,
                # The broker checks it, and the daemon counts the new keys of each user.
                user_id=self._named,
            )
            if timeout != math.inf:
                call.timer = self._loop.call_at(now + timeout, self._expire, call)
            self._send(call)
        except BaseException:
            self._forget(call)
            raise
        return call

    def _checked(self, body: bytes) -> bytes:
        if not isinstance(body, (bytes, bytearray, memoryview)):
            raise Unencodable(f"a body is bytes, not {type(body).__name__}")
        body = bytes(body)  # which the caller cannot change before it is sent
        if len(body) > self._options.max_body:
            raise BodyTooLarge(
                f"body of {len(body)} bytes; this client sends at most {self._options.max_body} (max_body), and the "
                "broker has a limit of its own (max_message_size)",
                size=len(body),
                limit=self._options.max_body,
            )
        return body

    def abandon(self, call: PendingCall) -> None:
        """Forget a call whose caller no longer waits. The request itself is not taken back."""
        if call.timer is not None:
            call.timer.cancel()
        self._hold_back(call)
        if call.wants_reply:
            self.slots.abandon(call.correlation_id)
        else:
            self._casts.pop(call.correlation_id, None)

    def _send(self, call: PendingCall) -> None:
        """Publish over the present link, or leave it to the next one. Raises Unencodable."""
        if self._link is None or not self._link.is_open:
            return
        confirm: asyncio.Future[Any] | None
        channel = self._link.lanes.shared(call.key)
        if channel is None:
            confirm = self._link.lanes.prove(call.key, partial(self._publish, call))
            if call.state is State.UNSENT:
                call.leaving = confirm
        elif self._options.confirm:
            confirm = self._publish(call, channel)
        elif self._stamp(call):
            channel.send(self._exchange, call.key, call.body, call.properties, mandatory=True)
            call.left = True
            self._accepted(call)
            return
        else:
            return
        if confirm is not None:
            confirm.add_done_callback(partial(self._on_confirm, call))

    def _publish(self, call: PendingCall, channel: Channel) -> asyncio.Future[None] | None:
        if not self._stamp(call):
            return None
        confirm = channel.publish(self._exchange, call.key, call.body, call.properties, mandatory=True)
        call.state, call.left, call.leaving = State.SENT, True, None
        return confirm

    def _stamp(self, call: PendingCall) -> bool:
        """Say in a request when it leaves, and shorten the expiration of one that is sent later, or again.

        Returns False for one whose deadline has passed: it is not sent, and its call ends with its timeout.
        """
        assert call.properties is not None
        if call.expires is not None:
            left = int((call.expires - self._loop.time()) * 1000)
            if left < 1:
                return False
            call.properties.expiration = str(left) if left <= LONGEST_EXPIRATION else None
        if call.wants_reply and call.properties.headers is not None:
            call.properties.headers[X_PUBLISH_TIME] = wall_ms()
        return True

    def _send_unsent(self) -> None:
        for call in [*self.slots.waiting(), *self._casts.values()]:
            if call.state is State.UNSENT and call.leaving is None:
                if call.properties is not None:
                    call.properties.user_id = self._named
                if call.wants_reply and call.properties is not None:
                    call.properties.reply_to = self._queue or DIRECT_REPLY_TO
                try:
                    self._send(call)
                except Exception as error:  # noqa: BLE001 - it is this call's, and must not end the client
                    self._fail(call, error)

    # --- what comes back ------------------------------------------------------------------------------------

    def _on_reply(self, message: Message) -> None:
        call = self.slots.match(message.properties.correlation_id)
        if call is None:
            log.debug("reply without a waiting call", extra={"request_id": message.properties.correlation_id})
            return
        # Not before: what stands in front of a message that the broker cannot deliver comes with each connection.
        self._crashes = 0
        if not self._warned and message.malformed is None and X_STATUS not in (message.properties.headers or {}):
            self._warned = True
            log.warning("a worker replies without x-status, taken as ok", extra={"key": call.key})
        answer = read(message)
        if isinstance(answer, Reply):
            self._settle(call, answer)
        else:
            self._settle(call, None, answer)

    def _on_confirm(self, call: PendingCall, confirm: asyncio.Future[None]) -> None:
        call.leaving = None
        if confirm.cancelled():
            return  # given up before it left
        error = confirm.exception()
        if error is None:
            if call.state is not State.UNSENT:  # else its time was over before it could leave
                self._accepted(call)
        elif call.state is State.UNSENT and isinstance(error, BrokerError):
            return  # the link was lost before it left
        elif isinstance(error, BrokerTimeout):
            # Its answer may still come. Only the next link sends it again, like all unconfirmed requests.
            if self._options.resend:
                call.state = State.UNSENT
        elif not call.future.done():
            final = failure(call, error, resend=self._options.resend)
            if final is None:
                call.state = State.UNSENT
            else:
                self._fail(call, final)

    def _on_return(self, error: Returned, properties: Properties) -> None:
        """Fail a returned request that was sent without confirms."""
        call = self.slots.match(properties.correlation_id)
        if call is not None:
            self._settle(call, None, undeliverable(error))

    def _accepted(self, call: PendingCall) -> None:
        call.state = State.ACCEPTED
        if not call.wants_reply:
            self._casts.pop(call.correlation_id, None)
            self._settle(call, None)

    def _leave_queue(self, reason: BrokerError) -> bool:
        """Take another reply queue where this one may hold what the broker cannot deliver; return whether.

        Such a reply ends each connection that consumes it (docs/reference/protocol.md#request). The old queue expires.
        """
        self._crashes = self._crashes + 1 if reason.code == CRASHED else 0
        if self._queue is None or self._crashes < CRASHES:
            return False
        self._crashes, self._queue = 0, reply_queue(self._user)
        return True

    def _fail_unanswerable(self, reason: BrokerError, *, left: bool) -> None:
        """Fail the outstanding requests that can get no answer after the loss of the link, or of the queue it had."""
        error: CallError | BrokerError
        for call in self.slots.waiting():
            if call.state is State.UNSENT:
                continue
            if self._queue is None or left:
                error = ReplyAddressLost(f"the reply for key {call.key!r} cannot arrive any more: {reason}")
            elif isinstance(reason, NotFound) and not self._options.confirm:
                error = undeliverable(reason)  # without confirms, it is unknown which one closed the channel
            elif isinstance(reason, AccessRefused) and not self._options.confirm:
                error = reason.again()
            else:
                continue
            self._fail(call, error)

    # --- ends of a call -------------------------------------------------------------------------------------

    def _settle(self, call: PendingCall, answer: Reply | None, error: BaseException | None = None) -> None:
        if call.timer is not None:
            call.timer.cancel()
        if not call.future.done():
            call.future.set_result(answer) if error is None else call.future.set_exception(error)

    def _hold_back(self, call: PendingCall) -> None:
        if call.leaving is not None:
            call.leaving.cancel()

    def _forget(self, call: PendingCall) -> None:
        if call.timer is not None:
            call.timer.cancel()
        self._hold_back(call)
        self.slots.release(call.correlation_id)
        self._casts.pop(call.correlation_id, None)

    def _fail(self, call: PendingCall, error: BaseException) -> None:
        self._forget(call)
        self._settle(call, None, error)

    def _fail_all(self, error: OsrdyneError) -> None:
        for call in [*self.slots.waiting(), *self._casts.values()]:
            self._fail(call, error)

    def _expire(self, call: PendingCall) -> None:
        wait, detail = self._waits_for(call)  # before it is taken back
        self.abandon(call)
        what = "reply" if call.wants_reply else "confirm"
        why = wait.words(detail, left=call.left)
        text = f"no {what} for key {call.key!r} within {call.timeout:g} s: {why}; correlation id {call.correlation_id}"
        self._settle(call, None, CallTimeout(text, wait=wait))

    def _waits_for(self, call: PendingCall) -> tuple[Wait, object]:
        """Return how far a call has come, and more about that."""
        if self._link is None:
            return Wait.CONNECTING, self._trouble
        reason = self._link.blocked_reason
        # Without confirms, a request that was written counts as accepted.
        if reason is not None and not (call.state is State.ACCEPTED and self._options.confirm):
            return Wait.BLOCKED, reason
        if call.state is State.ACCEPTED and self._options.confirm:
            return Wait.CONFIRMED, reason
        return Wait.SENT if call.left else Wait.UNSENT, None
