"""TLS with a private CA: with a password, with a certificate in its place, and with a peer that is not trusted."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from osrdyne_bus.credit import CreditWindow
from osrdyne_bus.engine import BusConnection, IncomingMessage, Login
from osrdyne_bus.errors import ConnectFailed
from osrdyne_bus.messages.envelopes import Envelope
from testbed.authority import Authority
from testbed.pem import Certificate
from testbed.tls import TlsBroker
from testbed.waiting import PATIENCE_SECONDS, until_async

pytestmark = pytest.mark.xdist_group("bus over tls")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def broker(one_version: str, authority: Authority) -> Iterator[TlsBroker]:
    """Wants a certificate of every client."""
    with TlsBroker(one_version, authority, client_certificates=True) as found:
        yield found


def context(authority: Authority, certificate: Certificate) -> ssl.SSLContext:
    made = ssl.create_default_context(cafile=str(authority.cacertfile))
    made.load_cert_chain(certificate.certfile, certificate.keyfile)
    return made


@pytest.mark.parametrize("password", [True, False])
async def test_a_client_with_a_certificate_needs_no_password_and_may_have_one(
    password: bool, broker: TlsBroker, authority: Authority
) -> None:
    # With a password, the certificate has the name of no user: it is not for the login then.
    tls = context(authority, authority.issue("no user" if password else broker.admin))
    login = Login(broker.admin, broker.admin_password) if password else Login()
    seen: list[bytes] = []
    body = {"durable": True, "arguments": {"x-queue-type": "classic"}}
    broker.management.put("queues", "/", "q", body=body)

    connection = await BusConnection.connect(
        "127.0.0.1", broker.amqps_port, login=login, tls=tls, virtual_host="vhost:/"
    )
    await (await connection.sender("/queues/q")).send(Envelope(body=b"x" * 100_000), PATIENCE_SECONDS)

    def received(incoming: IncomingMessage) -> None:
        seen.append(bytes(incoming.envelope.body))
        incoming.accept()

    await connection.subscribe("/queues/q", CreditWindow(1), received)
    await until_async(lambda: bool(seen))
    assert seen == [b"x" * 100_000]
    await connection.close()


async def test_a_peer_of_another_ca_is_not_trusted(broker: TlsBroker, authority: Authority, tmp_path: Path) -> None:
    tls = context(Authority(tmp_path), authority.issue(broker.admin))

    with pytest.raises(ConnectFailed, match="name the file of a private CA by `tls`, or --ca-file"):
        await BusConnection.connect("127.0.0.1", broker.amqps_port, tls=tls)
