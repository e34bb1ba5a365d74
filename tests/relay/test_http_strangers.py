"""Anything may come over HTTP: no task of a node stops, its memory stays bounded, and true calls are answered."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import socket
import threading
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import urllib3
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from osrdyne_relay.client import RelayClient
from testbed.hostile import http
from testbed.hostile.chance import drawn
from testbed.redis import RedisServer
from testbed.suite import examples
from testbed.waiting import PATIENCE_SECONDS, until
from tests.relay.http_nodes import GRANTS, TOKENS, InThread, http_settings, noded
from tests.relay.memory import reachable
from tests.simulation.many_seeds import first_seed

REQUEST = "0" * 32
#: An example that fails waits for long, so that it is not made smaller.
PHASES = (Phase.explicit, Phase.reuse, Phase.generate)
BOUNDED = settings(max_examples=60, deadline=None, phases=PHASES, suppress_health_check=[HealthCheck.too_slow])


class Errors(logging.Handler):
    """Keeps what is logged as an error."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.seen: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.seen.append(logging.Formatter().format(record))


class FuzzedNode(InThread):
    """A node that anything is sent to."""

    #: Tasks that it has while nothing is open.
    at_rest: Counter[str]
    #: What happened that must not.
    errors: Errors

    def __enter__(self) -> FuzzedNode:
        super().__enter__()
        self.errors = Errors()
        logging.getLogger().addHandler(self.errors)
        self.address = urlsplit(self.url).hostname, urlsplit(self.url).port
        self.http = urllib3.PoolManager(retries=False, timeout=60)
        until(lambda: self.ask("GET", "/readyz").status == 200)
        # It opens its connections to Redis when it needs them.
        assert called(self) == b"Y"
        self.http.clear()
        self.at_rest = until(self._steady)
        return self

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        logging.getLogger().removeHandler(self.errors)

    def _steady(self) -> Counter[str]:
        first = self.tasks()
        return first if first == self.tasks() else Counter()

    def ask(self, method: str, path: str, **more: Any) -> urllib3.BaseHTTPResponse:
        return self.http.request(method, self.url + path, **more)

    def send(self, data: bytes) -> None:
        """Send bytes, and go away."""
        with socket.create_connection(self.address) as one, contextlib.suppress(OSError):
            one.sendall(data)

    @contextlib.contextmanager
    def in_hand(self) -> Iterator[str]:
        """The id of a request that the client `worker` has, whose caller goes away at the end."""
        call = f"POST /v1/call?endpoint=maps%2Fin-hand HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKENS['caller']}"
        with socket.create_connection(self.address) as one:
            one.sendall(f"{call}\r\nContent-Length: 1\r\n\r\nx".encode())
            shown = {"Authorization": f"Bearer {TOKENS['worker']}"}
            got = self.ask("POST", "/v1/poll?endpoint=maps%2Fin-hand", headers=shown)
            assert got.status == 200, got.data
            yield got.headers["Relay-Request"]

    def works(self) -> None:
        """It lives, and has nothing left of what was open."""
        assert self.ask("GET", "/livez").status == 200
        assert self.errors.seen == []
        self.http.clear()
        left: Counter[str] = Counter()

        def is_at_rest() -> bool:
            nonlocal left
            left = self.tasks() - self.at_rest
            return not left

        try:
            until(is_at_rest)
        except AssertionError:
            raise AssertionError(f"tasks of the node go on: {dict(left)}") from None


@pytest.fixture(scope="module")
def fuzzed(shared_redis: RedisServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FuzzedNode]:
    shared_redis.run("FLUSHALL")
    own = {"worker_gone_after": 0.2, "forget_after": 0.2, "transfer_timeout": 5.0}
    node = http_settings(
        shared_redis, tmp_path_factory.mktemp("fuzzed"), prefix="fuzzed", serve=own, timings={"pickup_timeout": 0.2}
    )
    with FuzzedNode(node) as one:
        yield one
        # Nothing stopped: a true call is answered still.
        assert called(one) == b"Y"


def called(node: FuzzedNode) -> bytes:
    """The answer to a call, with this test as the worker."""

    def work() -> None:
        headers = {"Authorization": f"Bearer {TOKENS['worker']}"}
        got = node.ask("POST", "/v1/poll?endpoint=maps%2Ftrue", headers=headers)
        assert got.status == 200
        done = node.ask(
            "POST", f"/v1/requests/{got.headers['Relay-Request']}/response", body=got.data.upper(), headers=headers
        )
        assert done.status == 204

    worker = threading.Thread(target=work)
    worker.start()
    with RelayClient(node.url, token=TOKENS["caller"]) as client:
        body = client.call("maps/true", b"y", pickup_timeout=60, timeout=60).body
    worker.join()
    return body


tokens = st.sampled_from([*(f"Bearer {token}" for token in TOKENS.values()), "Bearer x", "Basic x", "", "Bearer"])
methods = st.sampled_from(["GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH"])
endpoints = st.sampled_from(["e", "maps%2Fa", "maps%2Fb", "other", "", "%00", "%ff", "%", "x" * 600])
waits = st.sampled_from(["", "&wait=0", "&wait=0.05", "&wait=-1", "&wait=nan", "&wait=1e999", "&wait=x", "&poll=x"])
paths = st.one_of(
    st.builds("/v1/{}?endpoint={}{}".format, st.sampled_from(["call", "poll", "socket"]), endpoints, waits),
    st.builds(
        "/v1/requests/{}/{}".format,
        st.sampled_from([REQUEST, "x", ""]),
        st.sampled_from(["response", "failure", "return", "news?wait=0"]),
    ),
    st.builds("/v1/streams/{}".format, st.sampled_from([REQUEST, "f" * 32, "x", ""])),
    st.sampled_from(["/", "/metrics", "/livez", "/readyz", "/v1", "//", "/v1/call?endpoint=e&timeout=0.05"]),
)
#: Names of data streams: right, one that is not there, and wrong ones.
NAMED: list[dict[str, object]] = [
    {"s": {"id": "f" * 32, "size": 3}},
    {"s": {"id": REQUEST, "size": 9}},
    {"s": {"id": "../x", "size": 3}},
    {"": 1},
]
JSON = ("{}", '{"a": 1}', "[", '{"\\ud800": "\\ud800"}', "[" * 9000, *map(json.dumps, NAMED))
headers = st.dictionaries(
    st.sampled_from(
        ["Relay-Headers", "Relay-Streams", "Content-Encoding", "Expect", "Upgrade", "Connection", "Origin", "X"]
    ),
    st.sampled_from([*JSON, "gzip", "100-continue", "websocket", "upgrade", "x" * 9000]),
    max_size=3,
)
bodies = st.one_of(st.binary(max_size=200), st.just(bytes(1_048_576)), st.just(bytes(2_000_000)))


#: What the worker may send about its request: close to what is right.
ours = st.tuples(
    st.just("POST"),
    st.builds("/v1/requests/{}/{}".format, st.just(REQUEST), st.sampled_from(["response", "failure", "return"])),
    st.just(f"Bearer {TOKENS['worker']}"),
    headers,
    bodies,
)


@BOUNDED
@given(st.one_of(st.tuples(methods, paths, tokens, headers, bodies), ours))
def test_any_request_gets_an_answer_that_is_not_a_mistake_of_the_node(
    fuzzed: FuzzedNode, asked: tuple[str, str, str, dict[str, str], bytes]
) -> None:
    method, path, token, headers, body = asked
    # It may be refused before it was sent.
    with fuzzed.in_hand() as request, contextlib.suppress(urllib3.exceptions.ProtocolError):
        path = path.replace(REQUEST, request)
        answer = fuzzed.ask(method, path, headers={**headers, "Authorization": token}, body=body, redirect=False)
        assert answer.status != 500
        if token not in {f"Bearer {token}" for token in TOKENS.values()} and path not in ("/livez", "/readyz"):
            assert answer.status in (400, 401, 417)
    assert fuzzed.errors.seen == []


@BOUNDED
@given(
    st.lists(
        st.one_of(
            st.binary(max_size=300),
            st.sampled_from(
                [
                    b"POST /v1/poll?endpoint=e HTTP/1.1\r\n",
                    b"GET /v1/socket HTTP/1.1\r\nUpgrade: websocket\r\nConnection: upgrade\r\n",
                    b"Host: x\r\n",
                    b"Content-Length: 100\r\n",
                    b"Content-Length: -1\r\n",
                    b"Transfer-Encoding: chunked\r\n",
                    b"ffffffff\r\n",
                    b"0\r\n\r\n",
                    b"\r\n",
                    b"\r\n\r\n",
                    b"x" * 20_000,
                    *(f"Authorization: Bearer {token}\r\n".encode() for token in TOKENS.values()),
                ]
            ),
        ),
        max_size=8,
    ).map(b"".join)
)
def test_any_bytes_end_with_their_connection(fuzzed: FuzzedNode, data: bytes) -> None:
    fuzzed.send(data)
    fuzzed.works()


@pytest.mark.parametrize("seed", [first_seed()])
@pytest.mark.parametrize("token", ["caller", "worker", "unknown"])
def test_requests_of_a_hostile_peer_end_with_their_connections(fuzzed: FuzzedNode, token: str, seed: int) -> None:
    paths = [
        *(
            "/v1/call?endpoint=maps%2Fa&timeout=0.05",
            "/v1/poll?endpoint=e&wait=0.05",
            "/v1/socket",
            "/metrics",
            "/readyz",
        ),
        *(f"/v1/requests/{REQUEST}/response", f"/v1/streams/{REQUEST}"),
    ]
    attacks = http.requests(paths, ("Authorization", f"Bearer {TOKENS.get(token, token)}"))
    for data in drawn(attacks, seed, examples(400)):
        fuzzed.send(data)
    fuzzed.works()


heads = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["serve", "response", "failure", "return", "request", "", 1, None]),
        "id": st.sampled_from([REQUEST, REQUEST, REQUEST, "", "x", 1, "0" * 40]),
        "endpoints": st.sampled_from([["e"], ["e", "e", "maps/a"], [], ["other"], ["\ud800"], None, [1]]),
        "at_once": st.sampled_from([0, 1, 2, 300, -1, 1.5, "1", 10**30]),
        "headers": st.sampled_from([{}, {"a": "b"}, {"a": 1}, [], {"a": "\ud800"}]),
        "reason": st.sampled_from(["no", "", 1, "x" * 9000]),
        "streams": st.sampled_from([{}, *NAMED, [], None, {"s": None}]),
    },
)  # fmt: skip
frames = st.one_of(
    st.binary(max_size=100),
    st.builds(lambda head, body: json.dumps(head).encode() + b"\n" + body, heads, st.binary(max_size=50)),
)


def masked(opcode: int, data: bytes, *, last: bool = True) -> bytes:
    """A frame of a client, masked with zeros."""
    size = bytes([0x80 | len(data)]) if len(data) < 126 else b"\xfe" + len(data).to_bytes(2)
    return bytes([(0x80 if last else 0) | opcode]) + size + bytes(4) + data


@settings(BOUNDED, max_examples=25)
@given(
    st.lists(
        st.one_of(
            st.builds(masked, st.just(2), frames),
            st.builds(masked, st.integers(0, 15), st.binary(max_size=50), last=st.booleans()),
            st.binary(max_size=50),
        ),
        max_size=10,
    )
)
def test_any_frames_of_a_worker_end_with_its_connection(fuzzed: FuzzedNode, sent: list[bytes]) -> None:
    with fuzzed.in_hand() as request, socket.create_connection(fuzzed.address) as one:
        one.sendall(UPGRADE)
        assert one.recv(4096).startswith(b"HTTP/1.1 101 ")
        with contextlib.suppress(OSError):
            for frame in sent:
                one.sendall(frame.replace(REQUEST.encode(), request.encode()))
    fuzzed.works()


UPGRADE = (
    "GET /v1/socket HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: upgrade\r\n"
    "Sec-WebSocket-Version: 13\r\n"
    f"Sec-WebSocket-Key: {'A' * 22}==\r\nAuthorization: Bearer {TOKENS['worker']}\r\n\r\n"
).encode()


@pytest.mark.full
def test_a_worker_that_sends_frames_and_reads_nothing_keeps_no_memory(redis: RedisServer, tmp_path: Path) -> None:
    frames = [
        masked(2, json.dumps({"type": "serve", "endpoints": endpoints, "at_once": 5}).encode() + b"\n")
        for endpoints in (["e", "maps/a"], [])
    ]
    frames.append(masked(2, json.dumps({"type": "response", "id": REQUEST}).encode() + b"\n"))
    with FuzzedNode(http_settings(redis, tmp_path)) as fuzzed, socket.socket() as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        one.connect(fuzzed.address)
        one.sendall(UPGRADE)
        assert one.recv(4096).startswith(b"HTTP/1.1 101 ")
        one.settimeout(2.0)
        tracemalloc.start()
        try:
            before = reachable()
            with contextlib.suppress(TimeoutError):
                for _ in range(2000):
                    one.sendall(b"".join(frames) * 100)
            grown, tasks = reachable() - before, fuzzed.tasks()
        finally:
            tracemalloc.stop()
        # Of forty megabytes; and the slots of the last frames.
        assert grown < 4_000_000
        assert tasks.total() < fuzzed.at_rest.total() + 40


@pytest.mark.full
def test_floods_of_strangers_and_clients_keep_no_memory(redis: RedisServer, tmp_path: Path) -> None:
    grants = {**GRANTS, "worker": {"serve": ["*"], "most": 100}}
    node = http_settings(redis, tmp_path, grants=grants, serve={"forget_after": 0.2, "worker_gone_after": 0.2})

    with FuzzedNode(node) as fuzzed:

        def flood(rounds: int) -> None:
            for number in range(rounds):
                fuzzed.send(b"POST /v1/call?endpoint=e HTTP/1.1\r\nContent-Length: 900000\r\n\r\n" + bytes(100_000))
                fuzzed.send(b"GET / HTTP/1.1\r\nX: " + b"x" * 100_000)
                for token in ("none-that-is-known", TOKENS["worker"]):
                    more = {"Authorization": f"Bearer {token}", "X": str(number)}
                    fuzzed.ask("POST", f"/v1/poll?endpoint=key-{number}&wait=0", headers=more)
                    fuzzed.ask("POST", f"/v1/requests/{number:032x}/response", headers=more, body=bytes(100_000))
            fuzzed.works()

        flood(50)
        tracemalloc.start()
        try:
            flood(50)
            before = reachable()
            flood(500)
            # Of two hundred megabytes. A node forgets some of it after a while.
            until(lambda: reachable() - before < 1_000_000, what="a node that keeps little")
        finally:
            tracemalloc.stop()
        assert called(fuzzed) == b"Y"


@pytest.mark.parametrize("said", ["", "POST /v1/poll?endpoint=e HTTP/1.1\r\nHost:"])
async def test_half_a_request_of_a_stranger_is_not_kept_and_a_client_that_waits_is(
    redis: RedisServer, tmp_path: Path, said: str
) -> None:
    async with noded(redis, tmp_path, serve={"stranger_timeout": 1.0}) as url:
        address = urlsplit(url)
        polling = asyncio.create_task(asyncio.to_thread(polled, url, wait=2))
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        with contextlib.closing(writer):
            writer.write(said.encode())
            assert await asyncio.wait_for(reader.read(), PATIENCE_SECONDS) == b""
        assert await polling == 204


def polled(url: str, *, wait: int) -> int:
    """What a worker's poll of this long is answered."""
    headers = {"Authorization": f"Bearer {TOKENS['worker']}"}
    return urllib3.request("POST", f"{url}/v1/poll?endpoint=e&wait={wait}", headers=headers, retries=False).status
