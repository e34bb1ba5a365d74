"""A broker that answers as a test wants, or stays silent; and peers that are not a broker."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from pika import spec
from pika.frame import Header, Heartbeat, Method, decode_frame

from testbed.waiting import PATIENCE_SECONDS

#: Given the channel and the method that a client sent, returns the frames to answer; None for the default answer.
Script = Callable[[int, Any], list[bytes] | None]
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def method(channel: int, value: Any) -> bytes:
    return bytes(Method(channel, value).marshal())


class FakeBroker:
    """Shakes hands as RabbitMQ does. `script` answers each method; where it returns None, the default answer goes."""

    def __init__(self, script: Script | None = None) -> None:
        self.script = script
        self.port = 0
        self.server: asyncio.Server
        #: Seconds between heartbeats that it proposes to clients.
        self.heartbeat = 60
        #: How many heartbeats it has received.
        self.heartbeats = 0
        #: Every method that was received, with its channel.
        self.received: list[tuple[int, Any]] = []
        self.writers: list[asyncio.StreamWriter] = []
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def uri(self) -> str:
        return f"amqp://guest:hunter2@127.0.0.1:{self.port}/"

    def send(self, *frames: bytes) -> None:
        """Send frames to the client that connected last."""
        self.writers[-1].write(b"".join(frames))

    def hang_up(self) -> None:
        """Reset the connection of the client that connected last."""
        self.writers[-1].transport.abort()

    async def until(self, name: str) -> Any:
        """Wait until the client has sent a method of this name."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                for _, value in self.received:
                    if name == value.NAME:
                        return value
                await asyncio.sleep(0.005)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await reader.readexactly(8)
            start = spec.Connection.Start(
                server_properties={"capabilities": {"publisher_confirms": True, "basic.nack": True}},
                mechanisms="PLAIN",
            )
            writer.write(method(0, start))
            data = b""
            while chunk := await reader.read(65536):
                data += chunk
                while data:
                    used, frame = decode_frame(data)
                    if frame is None:
                        break
                    data = data[used:]
                    self._take(writer, frame)

    def _take(self, writer: asyncio.StreamWriter, frame: Any) -> None:
        if isinstance(frame, Heartbeat):
            self.heartbeats += 1
        if not isinstance(frame, Method):
            return
        self.received.append((frame.channel_number, frame.method))
        answers = self.script(frame.channel_number, frame.method) if self.script else None
        if answers is None:
            answers = self._answers(frame.channel_number, frame.method)
        writer.write(b"".join(answers))

    def _answers(self, channel: int, sent: Any) -> list[bytes]:  # noqa: C901 - a table of answers
        match sent:
            case spec.Connection.StartOk():
                return [method(0, spec.Connection.Tune(channel_max=2047, frame_max=131_072, heartbeat=self.heartbeat))]
            case spec.Connection.Open():
                return [method(0, spec.Connection.OpenOk())]
            case spec.Connection.Close():
                return [method(0, spec.Connection.CloseOk())]
            case spec.Channel.Open():
                return [method(channel, spec.Channel.OpenOk())]
            case spec.Channel.Close():
                return [method(channel, spec.Channel.CloseOk())]
            case spec.Confirm.Select():
                return [method(channel, spec.Confirm.SelectOk())]
            case spec.Basic.Qos():
                return [method(channel, spec.Basic.QosOk())]
            case spec.Basic.Consume():
                return [method(channel, spec.Basic.ConsumeOk(sent.consumer_tag))]
            case spec.Basic.Cancel() if not sent.nowait:
                return [method(channel, spec.Basic.CancelOk(sent.consumer_tag))]
            case spec.Queue.Declare():
                return [method(channel, spec.Queue.DeclareOk(sent.queue, message_count=3, consumer_count=1))]
        return []


@contextlib.asynccontextmanager
async def fake_broker(script: Script | None = None, tls: ssl.SSLContext | None = None) -> AsyncIterator[FakeBroker]:
    """Serve a broker within the block."""
    broker = FakeBroker(script)
    async with _listening(broker._serve, broker.writers, tls) as server:
        broker.server, broker.port = server, server.sockets[0].getsockname()[1]
        yield broker


@contextlib.asynccontextmanager
async def peer(serve: Serve) -> AsyncIterator[int]:
    """Serve a peer that is not a broker within the block; gives its port."""
    writers: list[asyncio.StreamWriter] = []

    async def run(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        await serve(reader, writer)

    async with _listening(run, writers) as server:
        yield server.sockets[0].getsockname()[1]


@contextlib.asynccontextmanager
async def _listening(
    serve: Serve, writers: list[asyncio.StreamWriter], tls: ssl.SSLContext | None = None
) -> AsyncIterator[asyncio.Server]:
    """Listen within the block. At its end, reset the connections of `writers`."""
    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    try:
        yield server
    finally:
        server.close()
        for writer in writers:
            writer.transport.abort()
        for writer in writers:
            with contextlib.suppress(ConnectionError, OSError):
                await writer.wait_closed()
        await server.wait_closed()


def delivery(channel: int, consumer_tag: str, tag: int, header: bytes) -> bytes:
    """Return a delivery without a body, with `header` as the payload of its content header."""
    start = method(channel, spec.Basic.Deliver(consumer_tag, tag, False, "", "key"))
    return start + b"\x02" + channel.to_bytes(2, "big") + len(header).to_bytes(4, "big") + header + b"\xce"


def header_payload(properties: spec.BasicProperties) -> bytes:
    return bytes(Header(1, 0, properties).marshal()[7:-1])
