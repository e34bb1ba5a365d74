"""TLS: a private CA named in the URI is trusted, and nothing else is."""

from __future__ import annotations

import asyncio
import datetime as dt
import ipaddress
import ssl
import urllib.parse
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from pika import spec

from osrdyne_amqp import Connection
from osrdyne_amqp.errors import TlsFailed
from testbed.waiting import PATIENCE
from tests.broker.fake_broker import fake_broker, method


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A self-signed certificate for 127.0.0.1, which is its own CA, with its key beside it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
    now = dt.datetime.now(dt.UTC)
    built = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "certificate.pem"
    path.write_bytes(built.public_bytes(serialization.Encoding.PEM))
    path.with_suffix(".key").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return path


def server_side(certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, certificate.with_suffix(".key"))
    return context


def trusting(port: int, certificate: Path, host: str = "127.0.0.1") -> str:
    options = urllib.parse.quote(repr({"ca_certs": str(certificate)}), safe="")
    return f"amqps://guest:hunter2@{host}:{port}/?ssl_options={options}"


async def test_a_private_ca_named_in_the_uri_is_trusted_and_large_messages_pass(certificate: Path) -> None:
    async with fake_broker(tls=server_side(certificate)) as broker:
        connection = await Connection.open(trusting(broker.port, certificate), name="test")
        channel = await connection.channel(confirm=True)

        waiting = channel.publish("", "q", b"x" * 3_000_000)
        await channel.declare_queue("q")
        broker.send(method(1, spec.Basic.Ack(1, False)))

        await asyncio.wait_for(waiting, PATIENCE)
        await connection.close()


async def test_a_certificate_of_no_known_authority_is_refused(certificate: Path) -> None:
    async with fake_broker(tls=server_side(certificate)) as broker:
        with pytest.raises(TlsFailed, match="private CA is named by cacertfile") as caught:
            await Connection.open(f"amqps://guest:hunter2@127.0.0.1:{broker.port}/", name="test")

    assert "hunter2" not in str(caught.value)


async def test_a_certificate_of_another_host_is_refused(certificate: Path) -> None:
    async with fake_broker(tls=server_side(certificate)) as broker:
        with pytest.raises(TlsFailed, match="localhost"):
            await Connection.open(trusting(broker.port, certificate, "localhost"), name="test")
