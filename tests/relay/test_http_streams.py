"""Data streams over nodes: both ways, read lazily, gone with their call, and never whole when they are not."""

from __future__ import annotations

import asyncio
import concurrent.futures
import hashlib
import itertools
import json
import os
import resource
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from osrdyne_relay import (
    InvalidCall,
    NotCollected,
    Request,
    SharedDirectory,
    StoredStream,
    StreamLost,
    TooLarge,
    TooMany,
)
from osrdyne_relay.client import AsyncRelayClient, BlockingStream, RelayClient
from osrdyne_relay.errors import AccessDenied, CallRefused, NodesAway
from osrdyne_relay.redis.names import new_id
from osrdyne_relay.streams.base import CHUNK
from osrdyne_relay.worker import AsyncRelayRequest, RelayRequest
from testbed.redis import RedisServer
from testbed.waiting import until, until_async
from tests.relay.http_nodes import TOKENS, InThread, Raw, code_of, http_settings, noded, raw, working, working_in_thread
from tests.relay.http_processes import NodeProcess
from tests.relay.places import Directory, Place

ROOT = Path(__file__).parents[2]
CALLER = TOKENS["caller"]
WHOLE = os.urandom(3 * CHUNK + 7)


@pytest.fixture
def store(tmp_path: Path) -> Directory:
    """The store of a test's nodes."""
    return Directory(tmp_path / "streams")


@pytest.fixture(params=[True, False], ids=["websocket", "long poll"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the workers of a test get their requests in both ways."""
    monkeypatch.setattr("tests.relay.http_nodes.WEBSOCKET", request.param)


async def pieces(*given: bytes) -> AsyncIterator[bytes]:
    for stream in given:
        yield stream


async def never_ends() -> AsyncIterator[bytes]:
    yield b"some"
    await asyncio.Event().wait()


async def back(request: AsyncRelayRequest) -> bytes:
    """Answer with the streams of the request."""
    for name, stream in request.streams.items():
        await request.send_stream(name, stream)
    return b"sent back"


def back_in_thread(request: RelayRequest) -> bytes:
    """Do the same in a thread."""
    for name, stream in request.streams.items():
        request.send_stream(name, stream)
    return b"sent back"


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("handler", [back, back_in_thread])
async def test_streams_pass_two_nodes_both_ways_and_are_gone_when_the_response_is_read(
    redis: RedisServer, place: Place, tmp_path: Path, handler: Any
) -> None:
    source = tmp_path / "source"
    source.write_bytes(WHOLE)
    (tmp_path / "b").mkdir()
    async with (
        noded(redis, tmp_path, streams=place.settings) as a,
        noded(redis, tmp_path / "b", streams=place.settings) as b,
        working(b, "maps/LAX", handler),
        AsyncRelayClient(a, token=CALLER) as client,
    ):
        sent = Request(b"x", streams={"file": source, "none": pieces(), "ä": pieces(b"a", b"", b"b")})
        async with await client.call("maps/LAX", sent, timeout=60) as response:
            assert response.body == b"sent back"
            assert {name: stream.size for name, stream in response.streams.items()} == {
                "file": len(WHOLE),
                "none": 0,
                "ä": 2,
            }
            for _ in range(2):
                assert [chunk async for chunk in response.streams["ä"]] == [b"ab"]
            await response.streams["file"].save(tmp_path / "kept")
            assert place.files()
        await until_async(lambda: not place.files())
    assert (tmp_path / "kept").read_bytes() == WHOLE


@pytest.mark.parametrize("handler", [back, back_in_thread])
def test_streams_pass_from_and_to_threads(redis: RedisServer, store: Directory, tmp_path: Path, handler: Any) -> None:
    source = tmp_path / "source"
    source.write_bytes(WHOLE)

    def chunks() -> Iterator[bytes]:
        yield from (b"a", b"", b"b")

    node = InThread(http_settings(redis, tmp_path, streams=store.settings))
    with node, working_in_thread(node.url, "e", handler), RelayClient(node.url, token=CALLER) as client:
        sent = Request(b"x", streams={"file": source, "ab": chunks(), "none": []})
        with client.call("e", sent, timeout=60) as response:
            assert b"".join(response.streams["ab"]) == b"".join(response.streams["ab"]) == b"ab"
            assert list(response.streams["none"]) == []
            response.streams["file"].save(tmp_path / "kept")
        until(lambda: not store.files())
        with pytest.raises(StreamLost):
            list(response.streams["file"])
    assert (tmp_path / "kept").read_bytes() == WHOLE


async def test_streams_of_a_call_that_failed_are_removed(redis: RedisServer, store: Directory, tmp_path: Path) -> None:
    def threaded(url: str) -> None:
        with RelayClient(url, token=CALLER) as client, pytest.raises(NotCollected):
            client.call("e", Request(streams={"s": [b"abc"]}), pickup_timeout=0.2)

    async with (
        noded(redis, tmp_path, streams=store.settings) as url,
        AsyncRelayClient(url, token=CALLER) as client,
    ):
        with pytest.raises(NotCollected):
            await client.call("e", Request(streams={"s": pieces(b"abc")}), pickup_timeout=0.2)
        await asyncio.to_thread(threaded, url)
        # And of one that the node refused to make
        with pytest.raises(AccessDenied):
            await client.call("other", Request(streams={"s": pieces(b"abc")}))
        await until_async(lambda: not store.files())


async def test_a_source_that_breaks_off_fails_the_call_and_leaves_nothing(
    redis: RedisServer, store: Directory, tmp_path: Path
) -> None:
    ran: list[RelayRequest] = []

    async def breaks() -> AsyncIterator[bytes]:
        yield bytes(CHUNK)
        raise OSError(5, "the disk is broken")

    async def own() -> AsyncIterator[bytes]:
        yield b"some"
        raise LookupError("no such row")

    def runs(request: RelayRequest) -> None:
        ran.append(request)

    def breaks_in_thread() -> Iterator[bytes]:
        yield bytes(CHUNK)
        raise OSError(5, "the disk is broken")

    def threaded(url: str) -> None:
        with RelayClient(url, token=CALLER) as client:
            with pytest.raises(StreamLost, match="the disk is broken"):
                client.call("e", Request(streams={"s": breaks_in_thread()}))
            with pytest.raises(StreamLost, match="No such file"):
                client.call("e", Request(streams={"s": tmp_path / "none"}))
            with pytest.raises(InvalidCall, match="asyncio"):
                client.call("e", Request(streams={"s": pieces()}))

    async with (
        noded(redis, tmp_path, streams=store.settings) as url,
        working(url, "e", runs),
        AsyncRelayClient(url, token=CALLER) as client,
    ):
        with pytest.raises(StreamLost, match="the disk is broken"):
            await client.call("e", Request(streams={"s": breaks()}))
        with pytest.raises(LookupError, match="no such row"):
            await client.call("e", Request(streams={"s": own()}))
        await asyncio.to_thread(threaded, url)
        await until_async(lambda: not store.files())
    assert not ran


@pytest.mark.usefixtures("way")
async def test_streams_of_an_answer_that_does_not_count_are_removed(
    redis: RedisServer, store: Directory, tmp_path: Path
) -> None:
    begun, cancelled = threading.Event(), threading.Event()
    late: list[Exception] = []

    def handler(request: RelayRequest) -> bytes:
        request.send_stream("s", [b"abc"])
        if request.body == b"raise":
            raise LookupError("no such map")
        if request.body == b"large":
            return bytes(1_048_576)
        begun.set()
        cancelled.wait(60)
        try:
            request.send_stream("late", [b"abc"])
        except StreamLost as error:
            late.append(error)
        return b""

    async with (
        noded(redis, tmp_path, streams=store.settings) as url,
        working(url, "e", handler),
        AsyncRelayClient(url, token=CALLER) as client,
    ):
        with pytest.raises(CallRefused, match="exception"):
            await client.call("e", b"raise", timeout=60)
        await until_async(lambda: not store.files())
        with pytest.raises(Exception, match="too large"):
            await client.call("e", b"large", timeout=60)
        await until_async(lambda: not store.files())
        call = asyncio.create_task(client.call("e", b"wait"))
        await asyncio.to_thread(begun.wait, 60)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        cancelled.set()
        await until_async(lambda: not store.files())
    assert all("stop the work" in str(error) for error in late)


def sizes_elsewhere(request: RelayRequest) -> bytes:
    """Read the streams in a process of its own, and try to answer with one."""
    sizes = {name: len(b"".join(stream)) for name, stream in request.streams.items()}
    try:
        request.send_stream("s", [b"abc"])
    except StreamLost as error:
        return json.dumps([sizes, str(error)]).encode()
    return b"sent"


async def test_a_handler_in_a_process_of_its_own_reads_streams_and_gets_an_error_if_it_sends_one(
    redis: RedisServer, store: Directory, tmp_path: Path
) -> None:
    with concurrent.futures.ProcessPoolExecutor(1) as executor:
        async with (
            noded(redis, tmp_path, streams=store.settings) as url,
            working(url, "e", sizes_elsewhere, executor=executor),
            AsyncRelayClient(url, token=CALLER) as client,
        ):
            response = await client.call("e", Request(streams={"s": pieces(WHOLE)}), timeout=60)
    sizes, said = json.loads(response.body)
    assert sizes == {"s": len(WHOLE)}
    assert "process of its own" in said


async def test_a_node_without_a_store_says_so(redis: RedisServer, tmp_path: Path) -> None:
    async with noded(redis, tmp_path) as url, AsyncRelayClient(url, token=CALLER) as client:
        with pytest.raises(InvalidCall, match="set one up"):
            await client.call("e", Request(streams={"s": pieces(b"abc")}))


async def test_a_stream_that_is_too_large_is_refused_and_leaves_nothing(
    redis: RedisServer, store: Directory, tmp_path: Path
) -> None:
    limit = {"most_stream_bytes": 3}
    async with (
        noded(redis, tmp_path, streams=store.settings, serve=limit) as url,
        AsyncRelayClient(url, token=CALLER) as client,
    ):
        # The node answers although more may come.
        with pytest.raises(TooLarge, match="at most 3 bytes"):
            await client.call("e", Request(streams={"s": never_ends()}))
        with pytest.raises(TooLarge, match="at most 3 bytes"):
            await client.call("e", Request(streams={"s": pieces(WHOLE)}))
        await until_async(lambda: not store.files())


async def test_streams_are_for_clients_that_call_or_serve(redis: RedisServer, store: Directory, tmp_path: Path) -> None:
    path = f"/v1/streams/{new_id()}"
    async with noded(redis, tmp_path, streams=store.settings) as url, raw(url) as http:
        assert (await http.ask("caller", "PUT", path, b"abc"))[0] == 201
        for method in ("PUT", "GET", "DELETE"):
            answers = [await http.ask(who, method, path) for who in ("monitor", None, "an-unknown-long-token")]
            assert [(status, code_of(body)) for status, _, body in answers] == [(401, "AccessDenied")] * 3
        assert (await http.ask("worker", "GET", path))[2] == b"abc"
        status, _, body = await http.ask("worker", "GET", f"/v1/streams/{new_id()}")
        assert (status, code_of(body)) == (502, "StreamLost")
        for _ in range(2):
            assert (await http.ask("worker", "DELETE", path))[0] == 204
    assert not store.files()


async def test_a_caller_and_a_worker_in_any_language_use_streams_by_http_alone(
    redis: RedisServer, store: Directory, tmp_path: Path
) -> None:
    asked, answered = new_id(), new_id()
    async with noded(redis, tmp_path, streams=store.settings) as url, raw(url) as http:
        assert json.loads((await http.ask("caller", "PUT", f"/v1/streams/{asked}", b"abc"))[2]) == {"size": 3}
        named = json.dumps({"map": {"id": asked, "size": 3}})
        call = asyncio.create_task(http.ask("caller", "POST", "/v1/call?endpoint=e", b"x", Relay_Streams=named))

        status, headers, body = await http.ask("worker", "POST", "/v1/poll?endpoint=e")
        assert (status, body, json.loads(headers["Relay-Streams"])) == (200, b"x", json.loads(named))
        assert (await http.ask("worker", "GET", f"/v1/streams/{asked}"))[2] == b"abc"
        await http.ask("worker", "PUT", f"/v1/streams/{answered}", b"defg")
        named = json.dumps({"more": {"id": answered, "size": 4}})
        path = f"/v1/requests/{headers['Relay-Request']}/response"
        assert (await http.ask("worker", "POST", path, b"y", Relay_Streams=named))[0] == 204

        status, headers, body = await call
        assert (status, body, json.loads(headers["Relay-Streams"])) == (200, b"y", json.loads(named))
        assert (await http.ask("caller", "GET", f"/v1/streams/{answered}"))[2] == b"defg"
        await until_async(lambda: [file.name.partition(".")[0] for file in store.files()] == [answered])
        await http.ask("caller", "DELETE", f"/v1/streams/{answered}")
    assert not store.files()


@pytest.mark.parametrize(
    "named",
    ["[]", "{", "1", '{"s": 1}', '{"s": {"id": "../../etc/passwd", "size": 1}}', '{"s": {"id": "%s", "size": -1}}'],
)
async def test_names_of_streams_that_are_none_are_refused(named: str, redis: RedisServer, tmp_path: Path) -> None:
    shown = named.replace("%s", new_id())
    async with noded(redis, tmp_path) as url, raw(url) as http:
        status, _, body = await http.ask("caller", "POST", "/v1/call?endpoint=e", b"x", Relay_Streams=shown)
        assert (status, code_of(body)) == (400, "InvalidCall")


async def broken_off(http: Raw, path: str) -> None:
    """Begin to send a stream, and end the connection."""
    started = asyncio.Event()

    async def some() -> AsyncIterator[bytes]:
        yield b"some"
        started.set()
        await asyncio.Event().wait()

    headers = {"Authorization": f"Bearer {CALLER}"}
    task = asyncio.create_task(http.session.put(http.url + path, data=some(), headers=headers).__aenter__())
    await started.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_stream_whose_sender_goes_away_or_falls_silent_is_not_there(
    redis: RedisServer, store: Directory, tmp_path: Path
) -> None:
    async with (
        noded(redis, tmp_path, streams=store.settings, serve={"stream_pause": 0.5}) as url,
        raw(url) as http,
    ):
        gone, silent = f"/v1/streams/{new_id()}", f"/v1/streams/{new_id()}"
        await broken_off(http, gone)

        headers = {"Authorization": f"Bearer {CALLER}"}
        async with http.session.put(http.url + silent, data=never_ends(), headers=headers) as answer:
            assert answer.status == 408
        for path in (gone, silent):
            status, _, body = await http.ask("caller", "GET", path)
            assert (status, code_of(body)) == (502, "StreamLost")
        await until_async(lambda: not store.files())


async def test_a_stream_that_was_cut_has_grown_or_is_gone_is_not_read_as_whole(
    redis: RedisServer, store: Directory, tmp_path: Path
) -> None:
    def threaded(url: str, change: Callable[[Path], object]) -> None:
        with RelayClient(url, token=CALLER) as client, client.call("e", b"x", timeout=60) as response:
            change(store.of(response.streams["s"].id))
            with pytest.raises(StreamLost):
                list(response.streams["s"])

    async def answers(request: AsyncRelayRequest) -> bytes:
        await request.send_stream("s", pieces(WHOLE))
        return b""

    changes: tuple[Callable[[Path], object], ...] = (
        lambda path: path.write_bytes(WHOLE[:-1]),
        lambda path: path.write_bytes(WHOLE + b"x"),
        Path.unlink,
    )
    async with (
        noded(redis, tmp_path, streams=store.settings) as url,
        working(url, "e", answers),
        AsyncRelayClient(url, token=CALLER) as client,
    ):
        for change in changes:
            async with await client.call("e", b"x", timeout=60) as response:
                change(store.of(response.streams["s"].id))
                with pytest.raises(StreamLost):
                    _ = [chunk async for chunk in response.streams["s"]]
            await asyncio.to_thread(threaded, url, change)


#: More than the buffers between a reader and its node hold.
LARGE = 200 * CHUNK


async def test_a_node_that_is_killed_within_a_stream_fails_its_reader_and_another_node_has_it_whole(
    redis: RedisServer, store: Directory, tmp_path: Path
) -> None:
    (tmp_path / "b").mkdir()
    near = http_settings(redis, tmp_path / "b", streams=store.settings)

    async def answers(request: AsyncRelayRequest) -> bytes:
        await request.send_stream("s", pieces(bytes(LARGE)))
        return b""

    def threaded(stream: str, url: str, kill: Callable[[], None]) -> None:
        with RelayClient(url, token=CALLER) as client:
            chunks = iter(BlockingStream(client._streams, stream, LARGE))
            next(chunks)
            kill()
            with pytest.raises(StreamLost):
                list(chunks)

    async with (
        noded(redis, tmp_path, streams=store.settings) as far,
        working(far, "e", answers),
        AsyncRelayClient(far, token=CALLER) as other,
        await other.call("e", b"x", timeout=60) as response,
    ):
        stream = response.streams["s"]
        with NodeProcess(near, tmp_path / "b", "--port", "0") as node:
            async with AsyncRelayClient(await node.url(), token=CALLER) as client:
                chunks = aiter(StoredStream(client.streams, stream.id, LARGE))
                await anext(chunks)
                node.process.kill()
                with pytest.raises(StreamLost):
                    _ = [chunk async for chunk in chunks]
        with NodeProcess(near, tmp_path / "b", "--port", "0") as node:
            await asyncio.to_thread(threaded, stream.id, await node.url(), node.process.kill)
        assert sum([len(chunk) async for chunk in stream]) == LARGE


async def test_a_store_that_fails_within_a_stream_ends_the_connection_before_its_end(
    redis: RedisServer, store: Directory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def breaks(self: SharedDirectory, stream: str) -> AsyncIterator[bytes]:
        yield bytes(CHUNK)
        raise OSError(5, "the disk is broken")

    monkeypatch.setattr(SharedDirectory, "read", breaks)
    async with noded(redis, tmp_path, streams=store.settings) as url, raw(url) as http:
        with pytest.raises(aiohttp.ClientPayloadError):
            await http.ask("caller", "GET", f"/v1/streams/{new_id()}")
        assert (await http.ask(None, "GET", "/livez"))[0] == 200


async def test_a_node_that_is_killed_while_it_takes_a_stream_fails_the_call_which_then_did_not_run(
    redis: RedisServer, store: Directory, tmp_path: Path
) -> None:
    ran: list[RelayRequest] = []
    (tmp_path / "b").mkdir()
    near = http_settings(redis, tmp_path / "b", streams=store.settings)

    def runs(request: RelayRequest) -> None:
        ran.append(request)

    async def endless(kill: Callable[[], None]) -> AsyncIterator[bytes]:
        yield bytes(CHUNK)
        await until_async(lambda: bool(store.files()))
        kill()
        while True:
            yield bytes(CHUNK)

    def endless_in_thread(kill: Callable[[], None]) -> Iterator[bytes]:
        yield bytes(CHUNK)
        until(lambda: bool(store.files()))
        kill()
        yield from itertools.repeat(bytes(CHUNK))

    def threaded(url: str, kill: Callable[[], None]) -> None:
        with RelayClient(url, token=CALLER) as client, pytest.raises(StreamLost, match="nothing was called"):
            client.call("e", Request(streams={"s": endless_in_thread(kill)}))

    async with noded(redis, tmp_path, streams=store.settings) as far, working(far, "e", runs):
        with NodeProcess(near, tmp_path / "b", "--port", "0") as node:
            async with AsyncRelayClient(await node.url(), token=CALLER) as client:
                with pytest.raises(StreamLost, match="nothing was called"):
                    await client.call("e", Request(streams={"s": endless(node.process.kill)}))
        # What it leaves is not a stream: it has another name, and is swept.
        assert {file.suffix for file in store.files()} == {".part"}
        for file in store.files():
            file.unlink()
        with NodeProcess(near, tmp_path / "b", "--port", "0") as node:
            await asyncio.to_thread(threaded, await node.url(), node.process.kill)
    assert not ran


async def test_a_client_has_a_bounded_number_of_streams_open(
    redis: RedisServer, store: Directory, tmp_path: Path
) -> None:
    grants = {"caller": {"call": ["e"], "most": 1}}
    async with (
        noded(redis, tmp_path, grants=grants, streams=store.settings) as url,
        raw(url) as http,
        AsyncRelayClient(url, token=CALLER) as client,
    ):
        started, may_end = asyncio.Event(), asyncio.Event()

        async def slow() -> AsyncIterator[bytes]:
            yield b"some"
            started.set()
            await may_end.wait()

        headers = {"Authorization": f"Bearer {CALLER}"}
        path = f"{url}/v1/streams/{new_id()}"
        sending = asyncio.create_task(http.session.put(path, data=slow(), headers=headers).__aenter__())
        await started.wait()
        await until_async(lambda: bool(store.files()))
        with pytest.raises(TooMany):
            await client.call("e", Request(streams={"s": pieces(b"abc")}))
        may_end.set()
        (await sending).release()


async def test_a_node_that_takes_no_more_of_a_stream_fails_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("STREAM_STALL_SECONDS", "STREAM_REMOVAL_SECONDS"):
        monkeypatch.setattr(f"osrdyne_relay.client.asynchronous.{name}", 0.5)

    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield bytes(CHUNK)

    def threaded(url: str) -> None:
        with RelayClient(url, token=CALLER) as client, pytest.raises(StreamLost, match="nothing was called"):
            client.call("e", Request(streams={"s": itertools.repeat(bytes(CHUNK))}))

    # It accepts connections, and reads nothing.
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        url = f"http://127.0.0.1:{deaf.getsockname()[1]}"
        async with AsyncRelayClient(url, token=CALLER) as client:
            with pytest.raises(StreamLost, match="nothing was called"):
                await client.call("e", Request(streams={"s": endless()}))
        await asyncio.to_thread(threaded, url)


async def test_without_a_node_a_stream_is_not_sent_and_not_read(
    redis: RedisServer, store: Directory, tmp_path: Path
) -> None:
    async def answers(request: AsyncRelayRequest) -> bytes:
        await request.send_stream("s", pieces(WHOLE))
        return b""

    async with AsyncRelayClient("http://127.0.0.1:9", token=CALLER) as client:
        with pytest.raises(NodesAway):
            await client.call("e", Request(streams={"s": pieces(b"abc")}))
    with RelayClient("http://127.0.0.1:9", token=CALLER) as threads, pytest.raises(NodesAway):
        threads.call("e", Request(streams={"s": [b"abc"]}))
    async with noded(redis, tmp_path, streams=store.settings) as url, working(url, "e", answers):
        both = ["http://127.0.0.1:9", url]
        async with AsyncRelayClient(both, token=CALLER) as client:
            response = await client.call("e", Request(streams={"s": pieces(b"abc")}), timeout=60)
            assert b"".join([chunk async for chunk in response.streams["s"]]) == WHOLE


#: Sends a gigabyte, or sends back what it gets; prints bytes, digest, and largest memory before and after.
PROGRAM = """
import asyncio, hashlib, resource, sys
from osrdyne_relay import Request
from osrdyne_relay.client import AsyncRelayClient, BlockingStream, RelayClient
from osrdyne_relay.worker import AsyncRelayRequest, RelayRequest, RelayWorker

CHUNK = 262_144

def memory():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

def gigabyte():
    for number in range(4096):
        yield number.to_bytes(4) * (CHUNK // 4)

digest, size = hashlib.sha256(), 0

def seen(chunk):
    global size
    digest.update(chunk)
    size += len(chunk)
    return chunk

async def back(request: AsyncRelayRequest) -> bytes:
    async def chunks():
        async for chunk in request.streams["s"]:
            yield seen(chunk)
    await request.send_stream("s", chunks())
    return b""

def back_in_thread(request: RelayRequest) -> bytes:
    request.send_stream("s", map(seen, request.streams["s"]))
    return b""

async def calls(url, token):
    async with AsyncRelayClient(url, token=token) as client:
        async with await client.call("e", Request(streams={"s": gigabyte()})) as response:
            async for chunk in response.streams["s"]:
                seen(chunk)

role, url, token = sys.argv[1:]
before = memory()
if role == "caller":
    asyncio.run(calls(url, token))
elif role == "caller in threads":
    with RelayClient(url, token=token) as client:
        with client.call("e", Request(streams={"s": gigabyte()})) as response:
            for chunk in response.streams["s"]:
                seen(chunk)
else:
    RelayWorker(url, "e", back if role == "worker" else back_in_thread, token=token).run()
print(size, digest.hexdigest(), before, memory())
"""


@pytest.mark.full
@pytest.mark.parametrize("threads", ["", " in threads"])
def test_a_gigabyte_passes_with_little_memory_on_nodes_and_clients(
    redis: RedisServer, store: Directory, tmp_path: Path, threads: str
) -> None:
    before_all = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with InThread(http_settings(redis, tmp_path, streams=store.settings)) as node:
        words = [sys.executable, "-c", PROGRAM]
        with subprocess.Popen(
            [*words, f"worker{threads}", node.url, TOKENS["worker"]], stdout=subprocess.PIPE
        ) as worker:
            try:
                caller = subprocess.run(
                    [*words, f"caller{threads}", node.url, CALLER], stdout=subprocess.PIPE, timeout=500, check=True
                )
            finally:
                worker.terminate()
            said = [caller.stdout.decode().split(), worker.communicate(timeout=120)[0].decode().split()]
    digest = hashlib.sha256()
    for number in range(4096):
        digest.update(number.to_bytes(4) * (CHUNK // 4))
    for size, sha, before, after in said:
        assert (int(size), sha) == (2**30, digest.hexdigest())
        # In kilobytes: a fiftieth of the gigabyte
        assert int(after) - int(before) < 2**20 / 50
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_all < 2**20 / 50
    until(lambda: not store.files())
