"""Data streams in a directory and in a bucket: whole or not there, read lazily, gone with their call, little memory."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from io import BufferedWriter
from pathlib import Path

import pytest

from osrdyne_relay import (
    Answer,
    Collected,
    InvalidCall,
    NotCollected,
    Relay,
    Request,
    StreamLost,
)
from osrdyne_relay.redis.names import is_id, new_id
from osrdyne_relay.streams import directory
from osrdyne_relay.streams.base import CHUNK, chunks_of
from testbed.redis import RedisServer
from testbed.waiting import until, until_async
from tests.relay.nodes import serving, settings
from tests.relay.places import Directory, Place

ROOT = Path(__file__).parents[2]


async def pieces(*given: bytes) -> AsyncIterator[bytes]:
    for stream in given:
        yield stream


async def test_streams_go_both_ways_and_are_gone_when_the_call_has_ended(
    redis: RedisServer, place: Place, tmp_path: Path
) -> None:
    source, kept = tmp_path / "source", tmp_path / "kept"
    source.write_bytes(os.urandom(3 * CHUNK + 7))

    async def back(request: Collected) -> None:
        assert request.streams["file"].size == 3 * CHUNK + 7
        await far.apply_response(request.id, Answer(streams={"back": request.streams["file"], "none": pieces()}))

    node = settings(redis, streams=place.settings)
    async with Relay(node) as near, Relay(node) as far, serving(far, "e", back):
        async with await near.queue_and_wait("e", Request(streams={"file": source})) as response:
            await response.streams["back"].save(kept)
            assert [chunk async for chunk in response.streams["none"]] == []
            assert len(place.files()) >= 2
        await until_async(lambda: not place.files())

    assert kept.read_bytes() == source.read_bytes()


async def test_streams_of_a_call_that_failed_or_was_cancelled_are_removed(redis: RedisServer, place: Place) -> None:
    node = settings(redis, streams=place.settings)
    async with Relay(node) as near:
        with pytest.raises(NotCollected):
            await near.queue_and_wait("e", Request(streams={"s": pieces(b"abc")}), pickup_timeout=0.2)
        call = near.start("e", Request(streams={"s": pieces(b"abc")}))
        await until_async(lambda: len(place.files()) == 1)
        await call.cancel()
        await until_async(lambda: not place.files())


async def test_a_source_that_breaks_off_fails_the_call_and_leaves_nothing(
    redis: RedisServer, place: Place, tmp_path: Path
) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield b"some"
        raise OSError(5, "the disk is broken")

    node = settings(redis, streams=place.settings)
    async with Relay(node) as near:
        with pytest.raises(StreamLost, match="the disk is broken"):
            await near.queue_and_wait("e", Request(streams={"s": broken()}))
        with pytest.raises(StreamLost, match="No such file"):
            await near.queue_and_wait("e", Request(streams={"s": tmp_path / "missing"}))
    assert place.files() == []
    assert redis.run("KEYS", "*:call:*") == []


async def test_without_a_store_a_stream_is_refused(redis: RedisServer) -> None:
    async with Relay(settings(redis)) as near:
        with pytest.raises(InvalidCall, match="no store"):
            await near.queue_and_wait("e", Request(streams={"s": pieces(b"abc")}))


async def test_a_stream_can_be_read_only_whole(place: Place) -> None:
    store, stream = place.store(), new_id()
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def slow() -> AsyncIterator[bytes]:
        yield b"a" * CHUNK
        begun.set()
        await go_on.wait()
        yield b"b"

    writing = asyncio.create_task(store.store(stream, slow()))
    await begun.wait()
    with pytest.raises(StreamLost):
        await anext(store.read(stream))
    go_on.set()

    assert await writing == CHUNK + 1
    assert b"".join([chunk async for chunk in store.read(stream)]) == b"a" * CHUNK + b"b"


async def test_a_file_belongs_to_the_user_of_the_node(tmp_path: Path) -> None:
    place = Directory(tmp_path)
    await place.store().store(new_id(), pieces(b"a"))

    (path,) = place.files()
    assert path.stat().st_mode & 0o777 == 0o600


async def test_a_writer_that_is_cancelled_leaves_no_part(place: Place) -> None:
    begun = asyncio.Event()

    async def endless() -> AsyncIterator[bytes]:
        yield b"a"
        begun.set()
        await asyncio.Event().wait()

    writing = asyncio.create_task(place.store().store(new_id(), endless()))
    await begun.wait()
    writing.cancel()
    await asyncio.wait([writing])

    assert place.files() == []


async def test_what_expired_is_swept_and_what_is_touched_stays(place: Place) -> None:
    store = place.store(keep=1000.0)
    old, touched, new = new_id(), new_id(), new_id()
    for stream in (old, touched, new):
        await store.store(stream, pieces(b"abc"))
    for stream in (old, touched):
        place.grow_old(stream)
    await store.touch(touched)
    await store.touch(new_id())

    assert await store.sweep() == 1
    for stream in (touched, new):
        assert [chunk async for chunk in store.read(stream)] == [b"abc"]
        await store.remove(stream)
        await store.remove(stream)
    assert place.files() == []


async def test_what_the_relay_did_not_write_is_neither_swept_nor_replaced(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    store = place.store(keep=1000.0)
    foreign = place.foreign()
    for stream in {path.name for path in foreign if is_id(path.name)}:
        await store.store(stream, pieces(b"ours"))
        await store.touch(stream)
        await store.remove(stream)

    assert [await store.sweep(), await store.sweep()] == [0, 0]
    assert sorted(place.files()) == sorted(foreign)
    assert {path.read_bytes() for path in foreign} == {b"mine"}
    (said,) = (record.getMessage().partition(" that ")[2] for record in caplog.records)
    assert said.startswith("the relay did not write are left alone")


async def test_parts_of_writers_that_died_are_swept(tmp_path: Path) -> None:
    place, stream = Directory(tmp_path), new_id()
    store = place.store(keep=1000.0)
    await store.store(stream, pieces(b"abc"))
    place.of(stream).rename(f"{place.of(stream)}.part")
    os.utime(place.files()[0], (0, 0))

    assert await store.sweep() == 1
    assert place.files() == []


async def test_a_file_that_is_opened_when_its_writer_goes_away_is_closed_and_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opens, may_open, opened = threading.Event(), threading.Event(), directory._opened
    files = []

    def slowly(path: Path) -> BufferedWriter:
        opens.set()
        may_open.wait(60)
        files.append(opened(path))
        return files[0]

    monkeypatch.setattr(directory, "_opened", slowly)
    place = Directory(tmp_path)
    task = asyncio.create_task(place.store().store(new_id(), pieces(b"abc")))
    await asyncio.to_thread(opens.wait, 60)
    task.cancel()
    await asyncio.sleep(0)
    may_open.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert files[0].closed
    assert place.files() == []


async def test_a_response_that_comes_too_late_for_its_caller_leaves_no_stream(
    redis: RedisServer, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = settings(redis, streams=place.settings)
    held: list[bytes] = []
    async with Relay(node) as near, Relay(node) as far:
        call = near.start("e", b"x")
        receive = call.receive
        monkeypatch.setattr(call, "receive", held.append)
        waiting = asyncio.create_task(call.response())
        while (request := await far.dequeue("e")) is None:
            pass
        # The response is on its way when the caller goes.
        await request.apply(Answer(streams={"s": pieces(b"abc")}))
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await until_async(lambda: bool(held))
        receive(held[0])
        await until_async(lambda: not place.files())


@pytest.mark.parametrize("stream", ["", "../../etc/passwd", "f" * 31, "F" * 32, "f" * 31 + "/"])
async def test_an_id_that_is_none_of_ours_reaches_no_file(stream: str, place: Place, tmp_path: Path) -> None:
    store = place.store()

    for attempt in (
        store.store(stream, pieces(b"x")),
        anext(store.read(stream)),
        store.touch(stream),
        store.remove(stream),
    ):
        with pytest.raises(InvalidCall):
            await attempt
    assert place.files() == []
    assert Directory(tmp_path).files() == []


async def test_a_stream_that_was_cut_or_has_grown_is_lost_and_not_read_as_whole(
    redis: RedisServer, place: Place
) -> None:
    node = settings(redis, streams=place.settings)
    async with Relay(node) as near, Relay(node) as far:
        for change in (lambda path: path.write_bytes(b"ab"), lambda path: path.write_bytes(b"abcd"), Path.unlink):
            call = near.start("e", Request(streams={"s": pieces(b"abc")}))
            while (request := await far.dequeue("e")) is None:
                pass
            change(place.files()[0])
            with pytest.raises(StreamLost):
                _ = [chunk async for chunk in request.streams["s"]]
            await request.fail("its stream is lost")
            await asyncio.gather(call.response(), return_exceptions=True)
            await until_async(lambda: not place.files())


#: Sends or receives a gigabyte, and prints its bytes, digest, and largest memory before and after.
PROGRAM = """
import asyncio, hashlib, json, resource, sys
from osrdyne_relay import *
from osrdyne_relay.streams.base import CHUNK

async def gigabyte():
    for number in range(4096):
        yield number.to_bytes(4) * (CHUNK // 4)

def memory():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

async def main(role, url_file, streams):
    settings = RelaySettings.from_mapping({"redis": {"url_file": url_file}, "streams": json.loads(streams)})
    async with Relay(settings) as node:
        before = memory()
        if role == "caller":
            async with await node.queue_and_wait("e", Request(streams={"s": gigabyte()})) as response:
                digest, size = hashlib.sha256(), 0
                async for chunk in response.streams["s"]:
                    digest.update(chunk)
                    size += len(chunk)
        else:
            while (request := await node.dequeue("e")) is None:
                pass
            digest, size = hashlib.sha256(), request.streams["s"].size
            async def back():
                async for chunk in request.streams["s"]:
                    digest.update(chunk)
                    yield chunk
            await node.apply_response(request.id, Answer(streams={"s": back()}))
        print(size, digest.hexdigest(), before, memory())

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.full
def test_a_gigabyte_passes_with_little_memory_on_both_nodes(redis: RedisServer, place: Place) -> None:
    words = [str(redis.address_file), json.dumps(place.settings)]
    started = [
        subprocess.Popen([sys.executable, "-c", PROGRAM, role, *words], stdout=subprocess.PIPE)
        for role in ("server", "caller")
    ]
    said = [process.communicate(timeout=500)[0].decode().split() for process in started]

    digest = hashlib.sha256()
    for number in range(4096):
        digest.update(number.to_bytes(4) * (CHUNK // 4))
    for size, sha, before, after in said:
        assert (int(size), sha) == (2**30, digest.hexdigest())
        # In kilobytes: a fiftieth of the gigabyte; a tenth where whole parts are in memory.
        assert int(after) - int(before) < 2**20 / (50 if isinstance(place, Directory) else 10)
    until(lambda: not place.files())


def test_a_file_is_read_in_chunks(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * (2 * CHUNK + 1))

    async def sizes() -> list[int]:
        return [len(chunk) async for chunk in chunks_of(tmp_path / "file")]

    assert asyncio.run(sizes()) == [CHUNK, CHUNK, 1]
