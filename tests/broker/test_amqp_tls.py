"""TLS: a private CA named in the URI is trusted, and nothing else is."""

from __future__ import annotations

import asyncio
import ssl
import urllib.parse
from pathlib import Path

import pytest
from pika import spec

from osrdyne_amqp import Connection
from osrdyne_amqp.errors import TlsFailed
from testbed.authority import Authority
from testbed.waiting import PATIENCE_SECONDS
from tests.broker.fake_broker import fake_broker, method


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def own(authority: Authority) -> ssl.SSLContext:
    """The broker's side, at 127.0.0.1."""
    return authority.issue("server", addresses=["127.0.0.1"]).server_context()


def trusting(port: int, authority: Authority, host: str = "127.0.0.1") -> str:
    options = urllib.parse.quote(repr({"ca_certs": str(authority.cacertfile)}), safe="")
    return f"amqps://guest:hunter2@{host}:{port}/?ssl_options={options}"


async def test_a_private_ca_named_in_the_uri_is_trusted_and_large_messages_pass(
    authority: Authority, own: ssl.SSLContext
) -> None:
    async with fake_broker(tls=own) as broker:
        connection = await Connection.open(trusting(broker.port, authority), name="test")
        channel = await connection.channel(confirm=True)

        waiting = channel.publish("", "q", b"x" * 3_000_000)
        await channel.declare_queue("q")
        broker.send(method(1, spec.Basic.Ack(1, False)))

        await asyncio.wait_for(waiting, PATIENCE_SECONDS)
        await connection.close()


async def test_a_certificate_of_no_known_authority_is_refused(own: ssl.SSLContext) -> None:
    async with fake_broker(tls=own) as broker:
        with pytest.raises(TlsFailed, match="name the file of a private CA by cacertfile") as caught:
            await Connection.open(f"amqps://guest:hunter2@127.0.0.1:{broker.port}/", name="test")

    assert "hunter2" not in str(caught.value)


async def test_a_certificate_of_another_host_is_refused(authority: Authority, own: ssl.SSLContext) -> None:
    async with fake_broker(tls=own) as broker:
        with pytest.raises(TlsFailed, match="localhost"):
            await Connection.open(trusting(broker.port, authority, "localhost"), name="test")


async def test_a_ca_that_is_named_in_options_of_pika_is_not_asked_for(own: ssl.SSLContext, tmp_path: Path) -> None:
    async with fake_broker(tls=own) as broker:
        with pytest.raises(TlsFailed, match="ca_certs of ssl_options must hold that CA's certificate"):
            await Connection.open(trusting(broker.port, Authority(tmp_path)), name="test")
