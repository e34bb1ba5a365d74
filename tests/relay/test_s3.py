"""What only a bucket has: keys, TLS, and a server that refuses or is not there."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import obstore
import pytest

from osrdyne_protocol.errors import SettingsError
from osrdyne_relay import Relay, RelaySettings, Request, S3Settings, StreamLost
from osrdyne_relay.redis.names import new_id
from osrdyne_relay.streams.s3 import PART_BYTES, S3Streams
from testbed.authority import Authority
from testbed.handshakes import listening
from testbed.redis import RedisServer
from testbed.s3.server import S3Server
from testbed.waiting import until_async
from tests.relay.nodes import settings


async def pieces(*given: bytes) -> AsyncIterator[bytes]:
    for file in given:
        yield file


def store(server: S3Server, **more: str) -> S3Streams:
    return S3Streams(S3Settings.model_validate(server.settings(**more)))


async def test_a_stream_of_several_parts_is_read_as_it_was_written(s3: S3Server) -> None:
    stream, pieces_of = new_id(), [bytes([number]) * 100_000 for number in range(200)]
    assert sum(map(len, pieces_of)) > 2 * PART_BYTES
    place = store(s3)

    assert await place.store(stream, pieces(*pieces_of)) == 20_000_000
    assert b"".join([chunk async for chunk in place.read(stream)]) == b"".join(pieces_of)


async def test_a_source_that_breaks_off_leaves_no_parts(s3: S3Server) -> None:
    async def broken() -> AsyncIterator[bytes]:
        for _ in range(3):
            yield bytes(PART_BYTES)
        # A part that the server is still taking when the upload is given up may stay.
        await until_async(lambda: [part.stat().st_size for part in s3.parts()] == [PART_BYTES] * 3)
        raise OSError(5, "the disk is broken")

    with pytest.raises(OSError, match="the disk is broken"):
        await store(s3).store(new_id(), broken())
    await until_async(lambda: not s3.parts())


@pytest.mark.parametrize(
    ("wrong", "said"), [("access_key_file", "InvalidAccessKeyId|No user"), ("secret_key_file", "SignatureDoesNotMatch")]
)
async def test_wrong_keys_are_refused_with_the_words_of_the_server(
    wrong: str, said: str, s3: S3Server, redis: RedisServer, tmp_path: Path
) -> None:
    (tmp_path / "wrong").write_text("wrong0123456789\n")
    node = settings(redis, streams={"s3": s3.settings(**{wrong: str(tmp_path / "wrong")})})
    async with Relay(node) as near:
        with pytest.raises(StreamLost, match=said) as caught:
            await near.queue_and_wait("e", Request(streams={"s": pieces(b"abc")}))

    assert "bucket 'streams'" in str(caught.value)
    assert s3.secret_key_file.read_text().strip() not in str(caught.value)


async def test_changed_keys_are_used_without_a_restart(
    s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("osrdyne_relay.streams.s3._FRESH", timedelta(0))
    key, right = tmp_path / "key", s3.secret_key_file.read_text()
    key.write_text(right)
    place = store(s3, secret_key_file=str(key))

    assert await place.store(new_id(), pieces(b"abc")) == 3
    key.write_text("wrong0123456789\n")
    with pytest.raises(StreamLost, match="SignatureDoesNotMatch"):
        await place.store(new_id(), pieces(b"abc"))
    # Where it cannot be read, the last one is used.
    key.write_text(right)
    assert await place.store(new_id(), pieces(b"abc")) == 3
    key.unlink()
    assert await place.store(new_id(), pieces(b"abc")) == 3


async def test_an_absent_bucket_is_named(s3: S3Server) -> None:
    absent = store(s3, bucket="absent")

    with pytest.raises(StreamLost, match=r"cannot be stored in bucket 'absent'.*NoSuchBucket|404"):
        await absent.store(new_id(), pieces(b"abc"))
    with pytest.raises(StreamLost, match="cannot be read in bucket 'absent'"):
        await anext(absent.read(new_id()))
    with pytest.raises(StreamLost, match="cannot be removed in bucket 'absent'"):
        await absent.sweep()


@pytest.fixture
def tls_s3(tmp_path: Path) -> Iterator[tuple[S3Server, Authority]]:
    authority = Authority(tmp_path / "ca")
    with S3Server(authority.issue("server", addresses=["127.0.0.1"])) as server:
        yield server, authority


@pytest.mark.full
async def test_over_tls_only_a_known_authority_is_believed(tls_s3: tuple[S3Server, Authority]) -> None:
    server, authority = tls_s3
    stream = new_id()
    assert await store(server, ca_file=str(authority.cacertfile)).store(stream, pieces(b"abc")) == 3

    with pytest.raises(StreamLost, match="name the file of a private CA by streams"):
        await anext(store(server).read(stream))


@pytest.mark.full
async def test_changed_authorities_count_at_the_next_request(
    tls_s3: tuple[S3Server, Authority], tmp_path: Path
) -> None:
    server, authority = tls_s3
    file = tmp_path / "ca.pem"
    other = Authority(tmp_path / "other")
    shutil.copy(authority.cacertfile, file)
    place = store(server, ca_file=str(file))
    assert await place.store(new_id(), pieces(b"abc")) == 3

    shutil.copy(other.cacertfile, file)
    with pytest.raises(StreamLost, match=f"{file} must hold that CA's certificate"):
        await place.store(new_id(), pieces(b"abc"))
    shutil.copy(authority.cacertfile, file)
    assert await place.store(new_id(), pieces(b"abc")) == 3
    # What cannot be used changes nothing.
    file.write_text("nonsense")
    assert await place.store(new_id(), pieces(b"abc")) == 3


@pytest.mark.full
async def test_variables_of_the_environment_change_nothing(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_SESSION_TOKEN", "AWS_ACCESS_KEY_ID", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_BUCKET"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")

    assert await store(s3).store(new_id(), pieces(b"abc")) == 3


async def test_a_certificate_that_is_refused_is_reported_with_what_to_do(tmp_path: Path) -> None:
    ours, other = Authority(tmp_path / "ours"), Authority(tmp_path / "other")
    (tmp_path / "key").write_text("key")
    with listening(ours.issue("server", addresses=["127.0.0.1"])) as port:
        values = {
            "endpoint": f"https://127.0.0.1:{port}",
            "bucket": "streams",
            "access_key_file": str(tmp_path / "key"),
            "secret_key_file": str(tmp_path / "key"),
            "ca_file": str(other.cacertfile),
        }
        with pytest.raises(StreamLost, match=f"{other.cacertfile} must hold that CA's certificate"):
            await anext(S3Streams(S3Settings.model_validate(values)).read(new_id()))


@pytest.mark.parametrize("text", ["no certificate", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"])
def test_authorities_that_are_none_are_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "ca").write_text(text)
    (tmp_path / "key").write_text("key")
    values = {
        "endpoint": "https://s3.example.org",
        "bucket": "streams",
        "access_key_file": str(tmp_path / "key"),
        "secret_key_file": str(tmp_path / "key"),
        "ca_file": str(tmp_path / "ca"),
    }

    with pytest.raises(SettingsError, match=r"streams\.s3"):
        S3Streams(S3Settings.model_validate(values))


def test_keys_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    values = {
        "endpoint": "https://s3.example.org",
        "bucket": "streams",
        "access_key_file": str(tmp_path / "missing"),
        "secret_key_file": str(tmp_path / "missing"),
    }
    given = RelaySettings.from_mapping({"redis": {"url": "redis://h"}, "streams": {"s3": values}})

    with pytest.raises(SettingsError, match=r"streams\.s3\.access_key_file.*No such file"):
        Relay(given)


@pytest.mark.parametrize("first", [True, False])
async def test_nothing_stays_of_a_stream_that_is_removed_while_it_is_touched(
    s3: S3Server, monkeypatch: pytest.MonkeyPatch, first: bool
) -> None:
    prefix, stream, head = new_id(), new_id(), obstore.head_async
    place = store(s3, prefix=prefix)
    await place.store(stream, pieces(b"abc"))

    async def removed_meanwhile(*given: Any) -> Any:
        if first:
            await place.remove(stream)
        try:
            return await head(*given)
        finally:
            await place.remove(stream)

    monkeypatch.setattr(obstore, "head_async", removed_meanwhile)
    await place.touch(stream)

    assert not [path for path in (s3.bucket / prefix).rglob("*") if path.is_file()]
