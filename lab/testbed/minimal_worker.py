"""A whole worker on the interpreter's C modules, AMQP 0-9-1 by hand, so that a thousand fit in memory.

Start it with `python -I -S -E`. It answers each request with its key, `|` and the request's body, gives its
id in the reply header `x-worker-id`, sends only the two events that every worker must send, outlives
broker restarts, and on SIGTERM finishes what it holds.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import _socket
import _struct
import posix
import select
import sys

WORKER_ID = posix.environ[b"WORKER_ID"]
KEY = posix.environ[b"WORKER_KEY"]
QUEUE = posix.environ[b"WORKER_REQUESTS_QUEUE"]
EVENTS = posix.environ[b"WORKER_ACTIVITY_EXCHANGE"]
URI = posix.environ[b"WORKER_AMQP_URI"].decode()

Method = tuple[int, int]
#: Methods that are waited for, as class and method number of the AMQP 0-9-1 specification.
START, TUNE, OPEN_OK, CHANNEL_OPEN_OK, SELECT_OK = (10, 10), (10, 30), (10, 41), (20, 11), (85, 11)
QOS_OK, CONSUME_OK, CANCEL_OK, DELIVER, CONFIRMED = (60, 11), (60, 21), (60, 31), (60, 60), (60, 80)

stopping = False


def on_term(*_: object) -> None:
    global stopping  # noqa: PLW0603 -- a signal handler can pass it on in no other way
    stopping = True


def unquote(text: str) -> bytes:
    first, *rest = text.encode().split(b"%")
    return first + b"".join(bytes([int(part[:2], 16)]) + part[2:] for part in rest)


def short(value: bytes) -> bytes:
    return bytes([len(value)]) + value


def long(value: bytes) -> bytes:
    return _struct.pack(">I", len(value)) + value


def table(**values: bytes) -> bytes:
    return long(b"".join(short(n.replace("_", "-").encode()) + b"S" + long(v) for n, v in values.items()))


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    return _struct.pack(">BHI", kind, channel, len(payload)) + payload + b"\xce"


class Link:
    """One connection: channel 1 consumes and replies with confirms, channel 2 sends events without."""

    def __init__(self, wakeup: int) -> None:
        userinfo, _, rest = URI.partition("://")[2].rpartition("@")
        address, _, vhost = rest.partition("?")[0].partition("/")
        host, _, port = address.partition(":")
        user, _, password = (userinfo or "guest:guest").partition(":")
        # As bytes: text would load the codec for international names, 2 MB of it.
        found = _socket.getaddrinfo(host.encode(), int(port or 5672), 0, _socket.SOCK_STREAM)[0]
        self.socket = _socket.socket(*found[:3])
        self.socket.connect(found[4])
        self.socket.setsockopt(_socket.IPPROTO_TCP, _socket.TCP_NODELAY, 1)
        self.poll = select.poll()
        self.poll.register(self.socket.fileno(), select.POLLIN)
        self.poll.register(wakeup, select.POLLIN)
        self.unread = b""
        self.put(b"AMQP\0\0\x09\x01")
        self.wait(START)
        login = long(b"\0" + unquote(user) + b"\0" + unquote(password))
        self.call(0, (10, 11), table(product=b"minimal worker") + short(b"PLAIN") + login + short(b"en_US"))
        channels, self.frame_max, _ = _struct.unpack(">HIH", self.wait(TUNE)[1])
        self.call(0, (10, 31), _struct.pack(">HIH", channels, self.frame_max, 0))
        self.call(0, (10, 40), short(unquote(vhost) or b"/") + b"\0\0", OPEN_OK)
        for channel in (1, 2):
            self.call(channel, (20, 10), b"\0", CHANNEL_OPEN_OK)
        self.call(1, (85, 10), b"\0", SELECT_OK)
        self.call(1, (60, 10), _struct.pack(">IHB", 0, 1, 0), QOS_OK)

    def put(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[self.socket.send(view) :]

    def call(self, channel: int, method: Method, arguments: bytes, answer: Method | None = None) -> None:
        self.put(frame(1, channel, _struct.pack(">HH", *method) + arguments))
        if answer:
            self.wait(answer)

    def take(self, size: int) -> bytes:
        while len(self.unread) < size:
            data = self.socket.recv(65536)
            if not data:
                raise OSError("the broker closed the connection")
            self.unread += data
        data, self.unread = self.unread[:size], self.unread[size:]
        return data

    def next(self) -> bytes:
        """Return the payload of the next frame that is not a heartbeat."""
        while True:
            kind, _, size = _struct.unpack(">BHI", self.take(7))
            payload = self.take(size + 1)[:-1]
            if kind != 8:
                return payload

    def wait(self, *wanted: Method) -> tuple[Method, bytes]:
        """Return the next method, which must be a wanted one, and its arguments; else raise OSError."""
        payload = self.next()
        method = _struct.unpack(">HH", payload[:4])
        if method not in wanted:
            raise OSError(f"the broker sent method {method}: {payload[4:120]!r}")
        return method, payload[4:]

    def publish(self, channel: int, exchange: bytes, key: bytes, flags: int, properties: bytes, body: bytes) -> None:
        room = self.frame_max - 8
        head = _struct.pack(">HHQH", 60, 0, len(body), flags) + properties
        parts = [frame(3, channel, body[at : at + room]) for at in range(0, len(body), room)]
        self.call(channel, (60, 40), b"\0\0" + short(exchange) + short(key) + b"\0")
        self.put(frame(2, channel, head) + b"".join(parts))

    def event(self, name: bytes) -> None:
        self.publish(2, EVENTS, KEY, 1 << 13, table(x_event=name), b"")

    def serve(self) -> None:
        """Answer requests until SIGTERM."""
        self.event(b"started")
        self.call(1, (60, 20), b"\0\0" + short(QUEUE) + short(b"w") + b"\0" + long(b""), CONSUME_OK)
        cancelled = False
        while True:
            if stopping and not cancelled:
                cancelled = True
                self.call(1, (60, 30), short(b"w") + b"\0")
            if not cancelled and not self.unread and self.socket.fileno() not in dict(self.poll.poll()):
                continue
            method, arguments = self.wait(DELIVER, CANCEL_OK)
            if method == CANCEL_OK:
                self.call(0, (10, 50), b"\0\xc8\0\0\0\0\0", (10, 51))
                return
            self.answer(arguments[1 + arguments[0] :][:8])

    def answer(self, delivery_tag: bytes) -> None:
        head = self.next()
        size, flags = _struct.unpack(">QH", head[4:14])
        correlation_id, reply_to = properties(flags, head[14:])
        body = b""
        while len(body) < size:
            body += self.next()
        self.event(b"request-received")
        if reply_to:
            headers = table(x_status=b"ok", x_worker_id=WORKER_ID)
            # Delivery mode 2: an answer that waits for its caller outlives a broker restart.
            fields = headers + b"\2" + short(correlation_id)
            self.publish(1, b"", reply_to, 1 << 13 | 1 << 12 | 1 << 10, fields, KEY + b"|" + body)
            self.wait(CONFIRMED)
        self.call(1, (60, 80), delivery_tag + b"\0")


def properties(flags: int, data: bytes) -> tuple[bytes, bytes]:
    """Return correlation id and reply-to; properties stand in the order of their flags, from bit 15 down."""
    found = {10: b"", 9: b""}
    for bit in (15, 14, 13, 12, 11, 10, 9):
        if flags & 1 << bit:
            start = 4 if bit == 13 else 0 if bit in (12, 11) else 1
            size = {4: int.from_bytes(data[:4], "big"), 0: 1}.get(start, data[0])
            found[bit], data = data[start : start + size], data[start + size :]
    return found[10], found[9]


def main() -> None:
    reader, writer = _socket.socketpair()
    writer.setblocking(False)
    _signal.set_wakeup_fd(writer.fileno())
    _signal.signal(_signal.SIGTERM, on_term)
    pause = select.poll()
    pause.register(reader.fileno(), select.POLLIN)
    while not stopping:
        try:
            Link(reader.fileno()).serve()
        except OSError as error:
            print(f"worker {WORKER_ID.decode()}: {error}; connecting again", file=sys.stderr, flush=True)
            pause.poll(200 + posix.getpid() % 800)


if __name__ == "__main__":
    main()
