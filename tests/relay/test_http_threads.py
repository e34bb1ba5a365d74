"""RelayClient over the portal: its thread, what it makes in the caller's, and what ends meanwhile."""

from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import multiprocessing
import os
import pickle
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from osrdyne_relay import InvalidCall, Request, StreamLost
from osrdyne_relay.client import RelayClient
from osrdyne_relay.streams.base import CHUNK
from osrdyne_relay.worker import RelayRequest
from testbed.forked import in_fork
from testbed.redis import RedisServer
from testbed.waiting import PATIENCE_SECONDS, until
from tests.relay.http_nodes import TOKENS, InThread, http_settings, working_in_thread
from tests.relay.places import Directory

CALLER = TOKENS["caller"]
#: More than the buffers between a reader and its node hold.
LARGE = 200 * CHUNK


def threads() -> int:
    return [thread.name for thread in threading.enumerate()].count("osrdyne relay client")


class Handler:
    """Answers, or waits first, and notes what became of it."""

    def __init__(self) -> None:
        self.begun, self.cancelled, self.go = threading.Event(), threading.Event(), threading.Event()

    async def waits(self, request: Any) -> bytes:
        if request.body == b"wait":
            self.begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                self.cancelled.set()
        return bytes(request.body.upper())

    def plain(self, request: Any) -> bytes:
        if request.body == b"wait":
            self.begun.set()
            self.go.wait(60)
        return bytes(request.body.upper())

    async def large(self, request: Any) -> bytes:
        await request.send_stream("s", [bytes(CHUNK)] * (LARGE // CHUNK))
        return b""


def read_back(request: RelayRequest) -> bytes:
    """Answer with what the stream of the request holds."""
    return b"".join(request.streams["s"])


@pytest.fixture
def handler() -> Handler:
    return Handler()


@pytest.fixture
def url(redis: RedisServer, tmp_path: Path) -> Iterator[str]:
    with InThread(http_settings(redis, tmp_path, streams=Directory(tmp_path / "streams").settings)) as node:
        yield node.url


def test_a_client_has_a_thread_from_its_first_call_until_it_is_closed_and_then_again(
    url: str, handler: Handler
) -> None:
    with working_in_thread(url, "e", handler.plain):
        client = RelayClient(url, token=CALLER)
        client.close()
        assert threads() == 0
        for _ in range(2):
            assert client.call("e", b"x", timeout=60).body == b"X"
            assert threads() == 1
            client.close()
            assert threads() == 0


def test_the_thread_of_a_client_that_is_dropped_ends(url: str, handler: Handler) -> None:
    with working_in_thread(url, "e", handler.plain):
        assert RelayClient(url, token=CALLER).call("e", b"x", timeout=60).body == b"X"
        gc.collect()
        until(lambda: threads() == 0)


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_in_a_call_cancels_it_and_the_client_goes_on(url: str, handler: Handler) -> None:
    def interrupt() -> None:
        handler.begun.wait()
        os.kill(os.getpid(), signal.SIGINT)

    with working_in_thread(url, "e", handler.waits, at_once=2), RelayClient(url, token=CALLER) as client:
        threading.Thread(target=interrupt).start()
        with pytest.raises(KeyboardInterrupt):
            client.call("e", b"wait")
        until(handler.cancelled.is_set)
        assert client.call("e", b"x", timeout=60).body == b"X"


def test_a_call_in_flight_is_answered_although_another_thread_closes_the_client(url: str, handler: Handler) -> None:
    with working_in_thread(url, "e", handler.plain), concurrent.futures.ThreadPoolExecutor(1) as executor:
        client = RelayClient(url, token=CALLER)
        call = executor.submit(client.call, "e", b"wait")
        handler.begun.wait()
        client.close()
        handler.go.set()
        assert call.result().body == b"WAIT"
        until(lambda: threads() == 0)


def test_chunks_are_made_in_the_thread_that_calls(url: str) -> None:
    made_in: list[int] = []

    def chunks() -> Iterator[bytes]:
        for _ in range(3):
            made_in.append(threading.get_ident())
            yield b"abc"

    with working_in_thread(url, "e", read_back), RelayClient(url, token=CALLER) as client:
        assert client.call("e", Request(streams={"s": chunks()}), timeout=60).body == b"abc" * 3
    assert made_in == [threading.get_ident()] * 3


def test_a_generator_that_reads_a_stream_may_be_collected_in_the_thread_of_the_loop(url: str, handler: Handler) -> None:
    def read(client: RelayClient) -> Iterator[bytes]:
        with client.call("e", b"x") as response:
            yield from response.streams["s"]

    with working_in_thread(url, "e", handler.large), RelayClient(url, token=CALLER) as client:
        # Given a cycle, which only the collector ends
        held: list[Any] = [read(client)]
        held.append(held)
        next(held[0])
        portal = client._connections._here.portal
        assert portal is not None
        collected = threading.Event()
        gc.disable()
        try:
            del held
            portal.put(lambda: collected.set() if gc.collect() else None)
            assert collected.wait(PATIENCE_SECONDS)
        finally:
            gc.enable()
        assert client.call("e", b"x", timeout=60).body == b""


def test_a_chunk_that_is_not_bytes_is_refused_and_one_that_is_empty_left_out(url: str) -> None:
    with working_in_thread(url, "e", read_back), RelayClient(url, token=CALLER) as client:
        chunks: list[Any] = [b"abc", None, b"", b"def"]
        assert client.call("e", Request(streams={"s": chunks}), timeout=60).body == b"abcdef"
        chunks = ["text"]
        with pytest.raises(InvalidCall, match="is not bytes, but of type str"):
            client.call("e", Request(streams={"s": chunks}), timeout=60)


def test_a_stream_is_not_cut_without_an_error_when_its_client_is_closed_or_forked(url: str, handler: Handler) -> None:
    with working_in_thread(url, "e", handler.large), RelayClient(url, token=CALLER) as client:
        stream = client.call("e", b"", timeout=60).streams["s"]
        chunks = iter(stream)
        next(chunks)
        assert in_fork(lambda: list(chunks)).kind == "StreamLost"
        next(chunks)
        client.close()
        with pytest.raises(StreamLost, match="read it once more"):
            list(chunks)
        assert sum(map(len, stream)) == LARGE
        stream.remove()


def call_elsewhere(pickled: bytes, body: bytes) -> bytes:
    """Call by a client of another process."""
    client: RelayClient = pickle.loads(pickled)  # noqa: S301 - from ourselves
    return client.call("e", Request(streams={"s": [body, body]}), timeout=60).body


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_client_goes_to_processes_of_a_pool(url: str, method: str) -> None:
    context = multiprocessing.get_context(method)
    with (
        working_in_thread(url, "e", read_back),
        RelayClient(url, token=CALLER) as client,
        concurrent.futures.ProcessPoolExecutor(2, mp_context=context) as processes,
    ):
        assert client.call("e", Request(streams={"s": [b"here"]}), timeout=60).body == b"here"
        found = processes.map(call_elsewhere, [pickle.dumps(client)] * 4, [b"%d" % number for number in range(4)])
        assert list(found) == [b"00", b"11", b"22", b"33"]
