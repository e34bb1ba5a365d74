"""One consumer of a RabbitMQ stream over AMQP: the one module of the pipeline that imports pika.

A stream consumer is given what the log holds from an offset on, by whole chunks: what lies before the offset is
dropped here. The broker delivers what there is before it answers what was asked later on the same channel (seen on 4.0
and 4.3). So a question whose answer brings no message after all was acknowledged says that the end is reached: no
reader waits for a silence. Only the very first delivery may come behind such an answer, where a broker has little
processor time (one of 336 readings on 4.0): a reader that was given nothing yet asks again for a moment.

Some messages cannot be read so. The broker ends a connection rather than convert what AMQP 0-9-1 has no type for (a
UUID of AMQP 1.0, seen on 4.0 and 4.3), and pika ends it where a header has no value in Python (a time in the year
36,536,598). `MessageNotReceived` says so; from the next offset on, reading succeeds.
"""

from __future__ import annotations

import logging
import re
import ssl
import time
from collections.abc import Iterator
from typing import Any, NamedTuple
from urllib.parse import urlsplit
from weakref import WeakSet

import pika
from pika.adapters.utils.connection_workflow import AMQPConnectorStackTimeout
from pika.exceptions import ChannelClosedByBroker, ConnectionClosedByBroker, ConnectionOpenAborted

from osrdyne_pipeline.errors import BrokerAway, SourceError
from osrdyne_protocol import headers as names
from osrdyne_runtime import addresses, certificate_faults

# What pika logs as an error is raised by us, once and in one line. A level that the program gave it stays.
if logging.getLogger("pika").level == logging.NOTSET:
    logging.getLogger("pika").setLevel(logging.CRITICAL + 1)

#: Header that the broker gives each message of a stream.
OFFSET = "x-stream-offset"
#: Messages on the way at once. A stream must be acknowledged to go on; more than this gained nothing.
PREFETCH = 2000
#: Headers of events. All others are dropped at once: a worker can write 100 kB of them, which are megabytes here.
OF_EVENTS = (
    names.X_EVENT,
    names.X_EVENT_ID,
    names.X_EVENT_TIME,
    names.X_WORKER_ID,
    names.X_REQUEST_ID,
    names.X_OUTCOME,
    names.X_DURATION,
    names.X_USER,
    names.X_ERROR,
    names.X_REASON,
    names.X_OUTPUT,
    names.X_LOG,
    names.X_STARTED,
    names.X_BATCH_VERSION,
)
#: Messages handed on at once; fewer where their bodies and headers have so many bytes before.
BATCH = 8192
BATCH_BYTES = 16_000_000
#: Seconds without an answer after which a broker is given up: at the connection, later, and once the run is to end.
CONNECT_SECONDS, PATIENCE_SECONDS, LAST_SECONDS = 10.0, 60.0, 5.0
#: Seconds for the end of a connection.
CLOSE_SECONDS = 1.0
#: Seconds that the first delivery may take, and between two questions meanwhile.
FIRST_DELIVERY_SECONDS, ASK_AGAIN_SECONDS = 0.5, 0.05
#: Seconds between heartbeats: long, because they are not answered while the engine is busy with a batch.
HEARTBEAT_SECONDS = 600

#: With this the broker ends the connection where it cannot convert a message.
_INTERNAL_ERROR = 541
#: What pika raises of a broker that did not answer in `CONNECT_SECONDS`: not yet to TCP or TLS, or not to AMQP.
_TIMEOUTS = (AMQPConnectorStackTimeout, ConnectionOpenAborted)
#: What pika says of a connection that it ended itself, because it cannot decode a message.
_NOT_DECODED = re.compile(
    r"Stream connection lost: "
    r"(?:(?:Value|Overflow|Unicode\w+|Recursion|Index|Key|Type|Attribute)Error|error|Invalid\w+)\("
)


#: The consumers of this process.
_consumers: WeakSet[StreamConsumer] = WeakSet()


def hurry() -> None:
    """Give up brokers that say nothing for `LAST_SECONDS`, because this run is to end. A signal handler may call it."""
    for consumer in list(_consumers):
        consumer.hurry()


class StreamMessage(NamedTuple):
    """One message of a stream; what the source takes apart."""

    offset: int
    #: Bytes where it is not UTF-8.
    routing_key: str | bytes
    headers: dict[str, Any]
    #: The publisher's clock in seconds since the epoch, if it said so.
    timestamp: int | None
    body: bytes


class MessageNotReceived(SourceError):
    """The next message cannot be handed to a consumer of AMQP 0-9-1; its text says why."""


class StreamConsumer:
    """One consumer on a connection of its own."""

    def __init__(
        self, uri: str, stream: str, start: int | str, *, end: int | None = None, prefetch: int = PREFETCH
    ) -> None:
        self._stream = stream
        self._start = start
        self._least = start if isinstance(start, int) else 0
        self._end = end
        self._prefetch = prefetch
        self._messages: list[StreamMessage] = []
        self._size = 1
        #: Bytes of the bodies and headers of `_messages`.
        self._bytes = 0
        #: Deliveries, and how many there were when last looked at.
        self._seen = 0
        self._seen_at_question = -1
        self._seen_at_check = -1
        self._asked_first: float | None = None
        self._tag = 0
        self._done = False
        self._failure: SourceError | None = None
        self._where, parameters = _parameters(uri)
        self._authority = "ca_certs" if "ca_certs" in uri else None
        self._connection = pika.SelectConnection(
            parameters,
            on_open_callback=lambda connection: connection.channel(on_open_callback=self._opened),
            on_open_error_callback=self._not_open,
            on_close_callback=self._closed,
        )
        self._channel: Any = None
        self._watch: Any = None
        self._patience = PATIENCE_SECONDS
        _consumers.add(self)

    def hurry(self) -> None:
        """Look from now on whether the broker says something within `LAST_SECONDS`."""
        self._patience = LAST_SECONDS
        self._connection.ioloop.add_callback_threadsafe(self._look)

    def batches(self, size: int) -> Iterator[list[StreamMessage]]:
        """Give the messages in order, about `size` at a time. Raises `SourceError` behind those that came."""
        self._size = size
        try:
            while not self._done:
                self._turn()
                if self._messages:
                    ready, self._messages, self._bytes = self._messages, [], 0
                    yield ready
                if self._failure is not None:
                    raise self._failure
        finally:
            self._close()

    def _turn(self) -> None:
        """Let the connection work until there is enough to hand on, or nothing more."""
        self._seen_at_check = -1
        self._watch = self._connection.ioloop.call_later(self._patience, self._check)
        self._connection.ioloop.start()
        self._connection.ioloop.remove_timeout(self._watch)

    def _check(self) -> None:
        if self._seen == self._seen_at_check:
            self._fail(f"the broker has not answered for {self._patience:g} s", BrokerAway)
        self._look()

    def _look(self) -> None:
        if self._watch is not None:
            self._connection.ioloop.remove_timeout(self._watch)
        self._seen_at_check = self._seen
        self._watch = self._connection.ioloop.call_later(self._patience, self._check)

    def _opened(self, channel: Any) -> None:
        self._channel = channel
        channel.add_on_close_callback(self._channel_closed)
        channel.add_on_cancel_callback(lambda _frame: self._fail("it was deleted, or its node left"))
        channel.basic_qos(prefetch_count=self._prefetch, callback=self._consume)

    def _consume(self, _frame: object) -> None:
        self._channel.basic_consume(
            self._stream, self._delivered, arguments={OFFSET: self._start}, callback=self._question
        )

    def _question(self, _frame: object) -> None:
        """Ask for something that is answered after all deliveries that are due: see the module's docstring."""
        if self._done:
            return
        if self._seen != self._seen_at_question:
            self._ask()
        elif self._seen or time.monotonic() - (self._asked_first or 0.0) >= FIRST_DELIVERY_SECONDS:
            self._finish()
        else:
            self._connection.ioloop.call_later(ASK_AGAIN_SECONDS, self._ask)

    def _ask(self) -> None:
        if self._done:
            return
        self._asked_first = self._asked_first or time.monotonic()
        self._seen_at_question = self._seen
        if self._tag:
            self._channel.basic_ack(self._tag, multiple=True)
        self._channel.basic_qos(prefetch_count=self._prefetch, callback=self._question)

    def _delivered(self, channel: Any, method: Any, properties: Any, body: bytes) -> None:
        self._seen += 1
        self._tag = method.delivery_tag
        headers = properties.headers
        offset = int(headers[OFFSET])
        if offset < self._least or self._done:
            return
        if self._end is not None and offset >= self._end:
            self._finish()
            return
        kept = {name: headers[name] for name in OF_EVENTS if isinstance(headers.get(name), (str, bytes, int))}
        self._messages.append(StreamMessage(offset, method.routing_key, kept, properties.timestamp, body))
        self._bytes += len(body) + sum(len(value) for value in kept.values() if isinstance(value, (str, bytes)))
        if self._end is not None and offset + 1 == self._end:
            self._finish()
        elif len(self._messages) >= self._size or self._bytes >= BATCH_BYTES:
            self._connection.ioloop.stop()

    def _finish(self) -> None:
        self._done = True
        self._connection.ioloop.stop()

    def _fail(self, reason: str, kind: type[SourceError] = SourceError) -> None:
        self._failure = self._failure or kind(f"the stream {self._stream} of {self._where}: {reason}")
        self._finish()

    def _not_open(self, _connection: object, error: BaseException) -> None:
        setting = "ca_certs in ssl_options of the address"
        fault = certificate_faults.fault(error, authority=self._authority, setting=setting)
        kind = BrokerAway if fault is None and _is_away(error) else SourceError
        self._fail(f"no connection: {fault or _why_not_open(error)}", kind)

    def _closed(self, _connection: object, error: BaseException) -> None:
        if self._done:
            self._connection.ioloop.stop()
        else:
            self._fail(f"the connection was lost: {_text(error)}", BrokerAway)

    def _channel_closed(self, _channel: object, error: BaseException) -> None:
        if self._done:
            return
        reason = error.reply_text if isinstance(error, ChannelClosedByBroker) else _text(error)
        if _is_of_a_message(error):
            self._failure = MessageNotReceived(reason)
        kind = SourceError if isinstance(error, ChannelClosedByBroker) else BrokerAway
        self._fail(f"the broker refuses to hand it out: {reason}", kind)

    def _close(self) -> None:
        self._done = True
        _consumers.discard(self)
        if self._connection.is_open:
            self._connection.close()
            self._connection.ioloop.call_later(CLOSE_SECONDS, self._connection.ioloop.stop)
            self._connection.ioloop.start()
        self._connection.ioloop.close()


def _parameters(uri: str) -> tuple[str, Any]:
    """Return how a person knows the broker, without a password, and how pika finds it."""
    if wrong := addresses.problem(uri, "amqp", "amqps"):
        raise SourceError(f"the broker's address {wrong}; it looks like amqp://user:password@host:5672/vhost")
    if urlsplit(uri).path.count("/") > 1:  # of which pika takes the first part
        raise SourceError("the broker's address has a / within the virtual host's name, which is written %2F there")
    try:
        parameters = pika.URLParameters(uri)
        where = f"{parameters.host}:{parameters.port}{'' if parameters.virtual_host == '/' else '/'}"
        where += parameters.virtual_host
    except Exception:  # noqa: BLE001 -- whatever it says, it may hold the address
        raise SourceError("the broker's address has an option that cannot be read; see pika's URLParameters") from None
    parameters.heartbeat, parameters.stack_timeout = HEARTBEAT_SECONDS, CONNECT_SECONDS
    parameters.client_properties = {"connection_name": "osrdyne-pipeline"}
    return f"{where} (user {parameters.credentials.username})", parameters


def _is_of_a_message(error: BaseException) -> bool:
    """Say whether a connection ended because of a message, and not for what may be otherwise at the next attempt."""
    by_broker = isinstance(error, ConnectionClosedByBroker) and error.reply_code == _INTERNAL_ERROR
    return by_broker or _NOT_DECODED.match(str(error)) is not None


def _is_away(error: BaseException) -> bool:
    """Say whether a connection could not be opened because nothing answers, and not because of what was asked."""
    cause = _innermost(error)
    return isinstance(cause, (OSError, *_TIMEOUTS)) and not isinstance(cause, ssl.SSLError)


def _why_not_open(error: BaseException) -> str:
    cause = _innermost(error)
    if isinstance(cause, _TIMEOUTS):
        return (
            f"no AMQP answer within {CONNECT_SECONDS:g} s; check that this is the broker's AMQP port (5672, with TLS "
            "5671) and that the broker is healthy"
        )
    if isinstance(cause, ConnectionRefusedError):
        return "nothing listens there (connection refused); is the broker running?"
    return _text(error)


def _text(error: BaseException) -> str:
    """An error of pika's as one line: some say nothing but their name."""
    cause = _innermost(error)
    return str(cause) or type(cause).__name__


def _innermost(error: BaseException) -> BaseException:
    """Return the error that an error of pika's holds: some hold others."""
    held = [*getattr(error, "exceptions", ()), getattr(error, "exception", None), *error.args]
    inner = next((item for item in held if isinstance(item, BaseException)), None)
    return error if inner is None else _innermost(inner)
