"""HTTP in both directions: any request to the status endpoints, and any answer in place of the broker's."""

from __future__ import annotations

import asyncio
import contextlib
import http.server
import json
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import aiohttp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from osrdyne.broker.management_api import ManagementApi
from osrdyne.errors import ManagementError
from osrdyne.metrics import Metrics
from osrdyne.settings.daemon import StatusSettings
from osrdyne.status import server as status_server
from osrdyne_pool.drift import drift
from osrdyne_pool.settings import PoolSettings
from osrdyne_pool.topology import Topology, topology
from osrdyne_protocol.names import PoolNames
from testbed.command_line import osrdyne
from testbed.hostile.chance import mutated
from testbed.suite import examples
from testbed.waiting import PATIENCE_SECONDS
from tests.security.arbitrary import FUZZ, JSON, PRINTABLE

# --- requests to us ---------------------------------------------------------------------------------------------------

DOCUMENT: dict[str, Any] = {"keys": [], "alarm": None, "queues": {}, "static_queues_lost": {}}
REQUEST = b"GET /status?a=b HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


@contextlib.asynccontextmanager
async def served() -> AsyncIterator[int]:
    async with status_server.serve(
        StatusSettings(port=0), Metrics(), document=lambda: DOCUMENT, not_ready=lambda: None
    ) as port:
        yield port


async def ask(port: int, request: bytes, *, end_input: bool) -> bytes:
    """Send raw bytes, and end the server's input if `end_input`. Return all that it sends until it hangs up."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        if end_input:
            writer.write_eof()
        return await asyncio.wait_for(reader.read(), PATIENCE_SECONDS)
    except ConnectionError:
        return b""
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


@settings(FUZZ, max_examples=examples(100))
@given(
    st.lists(
        mutated(REQUEST)
        | st.binary(max_size=100)
        | st.builds(
            lambda method, path, name, value: f"{method} {path} HTTP/1.1\r\n{name}: {value}\r\n\r\n".encode(
                "utf-8", "replace"
            ),
            st.sampled_from(["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "TRACE", "X"]),
            st.sampled_from(["/status", "/metrics", "/../etc/passwd", "/%00", "//", "*", "http://x/y"]) | PRINTABLE,
            st.sampled_from(["Host", "Content-Length", "Transfer-Encoding", "Range", "Cookie"]),
            PRINTABLE,
        ),
        min_size=1,
        max_size=5,
    )
)
def test_after_any_request_the_status_is_served_and_no_answer_shows_inner_parts(
    caplog: pytest.LogCaptureFixture, requests: list[bytes]
) -> None:
    async def run() -> list[bytes]:
        async with served() as port:
            answers = [await ask(port, request, end_input=True) for request in requests]
            return [*answers, await ask(port, REQUEST, end_input=False)]

    *answers, last = asyncio.run(run())

    assert all(answer == b"" or answer.startswith(b"HTTP/1.") for answer in answers)
    assert not any(b"Traceback" in answer or b"site-packages" in answer for answer in answers)
    assert last.startswith(b"HTTP/1.1 200")
    assert not [record for record in caplog.records if record.exc_info]


async def test_a_header_without_end_is_cut_off_and_not_kept_in_memory() -> None:
    async with served() as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /status HTTP/1.1\r\nX: ")

        async def go_on() -> None:
            for _ in range(1024):
                writer.write(b"x" * 65536)
                await writer.drain()

        with pytest.raises(ConnectionError):
            await go_on()
        writer.close()


async def test_only_requests_that_read_are_answered() -> None:
    async with served() as port, aiohttp.ClientSession() as session:
        for method in ("POST", "PUT", "PATCH", "DELETE"):
            for path in ("healthz", "readyz", "metrics", "status"):
                async with session.request(method, f"http://127.0.0.1:{port}/{path}", data=b"x") as answer:
                    assert answer.status == 405


# --- answers to us ----------------------------------------------------------------------------------------------------


class Stranger(http.server.BaseHTTPRequestHandler):
    """Answers the n-th request with the n-th of `answers`, status and body, and begins again after the last."""

    answers: tuple[tuple[int, bytes], ...] = ()
    count = 0
    seen: list[str | None] = []  # noqa: RUF012 - shared on purpose

    def do_GET(self) -> None:
        kind = type(self)
        kind.seen.append(self.headers["Authorization"])
        status, body = kind.answers[kind.count % len(kind.answers)]
        kind.count += 1
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Log nothing: the terminal belongs to pytest."""


@pytest.fixture(scope="module")
def stranger() -> Iterator[int]:
    """Start a server where the management API should be; give its port."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Stranger)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_address[1]
    server.shutdown()
    thread.join()
    server.server_close()


HTML = b"<html><body>502 Bad Gateway</body></html>"
QUEUE = {"name": "core-req-42", "type": "quorum", "arguments": {"x-osrdyne-key": "42"}, "messages_ready": 0}
#: The names of all listings. An object has some of them, each with a right value or any other.
FIELDS = [
    *("name", "type", "arguments", "source", "destination", "destination_type", "routing_key", "pattern", "apply-to"),
    *("definition", "priority", "messages_ready", "messages_unacknowledged", "consumers", "tags", "user", "configure"),
    *("write", "read", "page_count", "items", "reason"),
]
LISTED = st.dictionaries(st.sampled_from(FIELDS), JSON | st.just("queue") | st.just([QUEUE]) | st.just({}), max_size=20)
BODIES = (
    st.sampled_from([HTML, b"", b"[" * 5000, b"null", b"true", b'"x"', b"[[]]", b"[null]", b"{}", b"\xff\xfe"])
    | JSON.map(lambda value: json.dumps(value).encode())
    | st.lists(LISTED, max_size=3).map(lambda value: json.dumps(value).encode())
    | LISTED.map(lambda value: json.dumps(value).encode())
    | mutated(json.dumps([QUEUE]).encode())
)
STATUSES = st.sampled_from([200, 200, 200, 201, 204, 301, 400, 401, 403, 404, 500, 503])


EXPECTED = topology(PoolSettings.from_mapping({"name": "core"}))


async def make_every_call(port: int) -> list[str]:
    """Make every call once, and compare the topology with the declared one. Return the texts of the errors.

    Any error but ManagementError fails the test.
    """
    api = ManagementApi(f"http://user:hunter2@127.0.0.1:{port}", "v", timeout=5)
    calls = (
        lambda: api.totals("core-req-42"),
        lambda: api.request_queues(PoolNames("core")),
        api.topology,
        lambda: api.topology(with_users=True),
    )
    texts = []
    for call in calls:
        try:
            answer = await call()
        except ManagementError as error:
            texts.append(str(error))
        else:
            if isinstance(answer, Topology):
                drift(EXPECTED, answer, with_users=True)
    return texts


@settings(FUZZ, max_examples=examples(150))
@given(answers=st.lists(st.tuples(STATUSES, BODIES), min_size=1, max_size=8))
def test_any_answer_of_a_server_raises_a_management_error_at_worst(
    stranger: int, answers: list[tuple[int, bytes]]
) -> None:
    Stranger.answers, Stranger.count = tuple(answers), 0

    texts = asyncio.run(make_every_call(stranger))

    assert not any("hunter2" in text for text in texts)


#: A status document, each value right or any other.
DOCUMENTS = st.fixed_dictionaries(
    {"keys": st.lists(st.fixed_dictionaries({"key": st.text(max_size=5) | JSON, "state": st.just("ready") | JSON}))},
    optional=dict.fromkeys(("pool", "state", "detail", "driver", "alarm", "queues", "instance", "ready"), JSON),
).map(lambda value: json.dumps(value).encode())


@settings(FUZZ, max_examples=examples(100))
@given(answer=st.tuples(STATUSES, BODIES | DOCUMENTS))
def test_the_status_command_ends_with_a_status_and_a_line_whatever_answers_it(
    stranger: int, answer: tuple[int, bytes]
) -> None:
    Stranger.answers = (answer,)

    done = osrdyne("status", "--url", f"http://127.0.0.1:{stranger}")

    assert done.code in (0, 1, 2)
    assert done.code == 0 or done.line


async def test_an_answer_that_is_not_http_is_not_a_daemon() -> None:
    async def strange(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail.example ESMTP\r\n")
        writer.close()

    async with await asyncio.start_server(strange, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        done = await asyncio.to_thread(osrdyne, "status", "--url", f"http://127.0.0.1:{port}")

    assert done.code == 2
    assert "no daemon answers" in done.line


@pytest.mark.parametrize(
    "body", [HTML, b"[]", b"[1]", b'{"items": 3}', b'{"page_count": 1000000000, "items": []}', b"[" * 100_000]
)
async def test_the_error_for_the_answer_of_another_server_says_what_to_check(stranger: int, body: bytes) -> None:
    Stranger.answers = ((200, body),)

    with pytest.raises(ManagementError, match="is it RabbitMQ's management API that listens there"):
        await ManagementApi(f"http://user:hunter2@127.0.0.1:{stranger}", "v").request_queues(PoolNames("core"))


@pytest.mark.parametrize("status", [400, 500])
async def test_an_error_whose_body_is_a_list_is_a_management_error(stranger: int, status: int) -> None:
    Stranger.answers = ((status, b'["unexpected"]'),)

    with pytest.raises(ManagementError):
        await ManagementApi(f"http://user:hunter2@127.0.0.1:{stranger}", "v").topology()


@pytest.mark.parametrize(
    "uri", ["http://u:hunter2@[::1", "http://u:hunter2@h:port", "ftp://u:hunter2@h", "http://h", ""]
)
def test_an_address_that_cannot_be_read_is_a_management_error(uri: str) -> None:
    with pytest.raises(ManagementError, match="it looks like") as caught:
        ManagementApi(uri, "v")
    assert "hunter2" not in str(caught.value)


async def test_a_password_is_asked_for_before_each_call_and_sent_as_utf_8(stranger: int) -> None:
    Stranger.answers = ((200, b'{"items": []}'),)
    Stranger.seen.clear()
    passwords = iter(["one", "one", "zw%C3%B6lf%E2%82%AC"])
    api = ManagementApi(lambda: f"http://user:{next(passwords)}@127.0.0.1:{stranger}", "v")

    await api.request_queues(PoolNames("core"))
    await api.request_queues(PoolNames("core"))

    assert [aiohttp.BasicAuth.decode(str(header), "utf-8").password for header in Stranger.seen] == ["one", "zwölf€"]


async def test_an_address_that_cannot_be_read_for_now_is_a_management_error() -> None:
    texts = iter(["http://user:hunter2@127.0.0.1:1"])
    api = ManagementApi(lambda: next(texts), "v")

    with pytest.raises(ManagementError, match="address cannot be read"):
        await api.topology()
