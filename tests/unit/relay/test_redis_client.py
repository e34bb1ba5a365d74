"""What a connection to Redis is made with, before there is one."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from redis.asyncio.connection import SSLConnection

from osrdyne_protocol.errors import SettingsError
from osrdyne_relay.errors import RedisRefused
from osrdyne_relay.redis.client import RedisClient
from osrdyne_relay.redis.connections import _Login
from osrdyne_relay.settings import RedisSettings
from testbed.authority import Authority
from testbed.handshakes import listening


def test_a_certificate_that_cannot_be_used_is_named_before_anything_connects(tmp_path: Path) -> None:
    own = Authority(tmp_path).issue("own")
    files = {"certificate_file": own.certfile, "key_file": own.certfile}
    settings = RedisSettings.model_validate({"url": "rediss://127.0.0.1:1", **files})

    with pytest.raises(SettingsError, match=r"redis\.certificate_file: cannot be used: no certificate and key in PEM"):
        RedisClient(settings)


async def test_a_certificate_that_is_refused_is_reported_with_what_to_do_and_not_tried_again(
    tmp_path: Path,
) -> None:
    ours, other = Authority(tmp_path / "ours"), Authority(tmp_path / "other")
    with listening(ours.issue("server", addresses=["127.0.0.1"])) as port:
        for ca_file, expected in (
            (None, "name the file of a private CA by relay.redis.ca_file"),
            (other.cacertfile, f"{other.cacertfile} must hold that CA's certificate"),
        ):
            url = f"rediss://127.0.0.1:{port}"
            client = RedisClient(RedisSettings.model_validate({"url": url, "ca_file": ca_file}))
            with pytest.raises(RedisRefused, match=expected):
                await client.run(("PING",))
            subscriber = client.subscriber(lambda *_: None)
            with pytest.raises(RedisRefused, match=expected):
                await subscriber.subscribe("channel")
            await subscriber.close()
            await client.close()


def test_a_log_in_that_cannot_be_read_again_is_an_outage_and_no_line_for_each_connection(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "password"
    file.write_text("secret")
    given = {"url": "redis://127.0.0.1:1", "user": "relay", "password_file": file}
    login = _Login(RedisSettings.model_validate(given))
    file.unlink()
    assert [login.get_credentials() for _ in range(5)] == [("relay", "secret")] * 5
    file.write_text("another")
    assert login.get_credentials() == ("relay", "another")

    lines = [record.getMessage().partition(";")[0].partition(" seconds=")[0] for record in caplog.records]
    assert lines == ["the log-in of Redis cannot be used", "the log-in of Redis can be used again"]


def test_redis_py_has_the_private_names_that_connections_use() -> None:
    connection = SSLConnection()

    assert {"_writer", "_connection_arguments"} <= set(dir(connection))
    assert "context" in dir(connection.ssl_context)


async def test_what_redis_refuses_says_at_which_redis() -> None:
    """The words of Redis name no address, and a node may have been given the wrong one."""

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1000)
        writer.write(b"-NOPERM this user has no permissions\r\n")
        await reader.read()
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        client = RedisClient(RedisSettings.model_validate({"url": f"redis://127.0.0.1:{port}"}))
        with pytest.raises(RedisRefused, match=rf"It says: NOPERM.* \(Redis at 127\.0\.0\.1:{port}\)"):
            await client.run(("PING",))
        await client.close()
