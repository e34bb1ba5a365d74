"""TLS with a private CA and with client certificates, for everyone who talks to the broker; clear errors otherwise."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from osrdyne.broker.management_api import ManagementApi
from osrdyne.errors import ManagementError
from osrdyne_amqp import Connection
from osrdyne_amqp.errors import AccessRefused, BrokerError, InvalidUri, TlsFailed
from osrdyne_client import Client
from testbed.authority import Authority
from testbed.handshakes import listening
from testbed.pool import DaemonProcess, Pool
from testbed.tls import TlsBroker
from testbed.waiting import until
from testbed.workers import LIBRARY
from tests.broker.fake_broker import fake_broker

# Its brokers are of its own: one group, so that each is started once.
pytestmark = [pytest.mark.both_versions, pytest.mark.xdist_group("tls")]

PASSWORD = "hunter2hunter2"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """A CA that no program here trusts."""
    return Authority(tmp_path_factory.mktemp("stranger"))


@pytest.fixture(scope="module")
def open_broker(broker_version: str, authority: Authority) -> Iterator[TlsBroker]:
    """Takes TLS without a certificate of the client, too."""
    broker = TlsBroker(broker_version, authority, client_certificates=False)
    with broker:
        yield broker


@pytest.fixture(scope="module")
def strict_broker(broker_version: str, authority: Authority) -> Iterator[TlsBroker]:
    """Wants a certificate of every client."""
    broker = TlsBroker(broker_version, authority, client_certificates=True)
    with broker:
        yield broker


def serve_over_tls(
    broker: TlsBroker, make_daemon: Callable[..., DaemonProcess], query: Callable[[str], str], *, password: bool
) -> None:
    """A request through daemon, worker and client, all over TLS and nothing over plain TCP."""
    vhost = "tls"
    broker.management.add_vhost(vhost, broker.admin)
    pool = Pool.on(broker, vhost)
    users = pool.users

    def uri(user: str) -> str:
        return broker.amqps_uri(user, pool.passwords[user] if password else None, vhost, query(user))

    try:
        daemon = make_daemon(pool, worker=LIBRARY, start=False)
        # The management API takes certificates, but no log-in by them.
        https = broker.https_uri(users.daemon, pool.passwords[users.daemon], query(users.daemon).partition("&auth")[0])
        for name, text in (("amqp", uri(users.daemon)), ("worker", uri(users.worker)), ("management", https)):
            (daemon.directory / f"{name}.uri").write_text(text)
        daemon.start()
        with Client(uri(users.client), "core") as client:
            assert client.call("42", b"x", timeout=60).body == b"42|x"
            expected = {(user, True) for user in (users.daemon, users.worker, users.client)}

            def listed() -> set[tuple[str, bool]]:
                return {
                    (connection["user"], connection["ssl"])
                    for connection in broker.management.get("vhosts", vhost, "connections")
                }

            until(lambda: listed() == expected, what="three connections, all with TLS")
        daemon.close()
    finally:
        pool.remove_users()
        broker.management.delete("vhosts", vhost)


def test_a_pool_works_over_tls_with_a_private_ca(
    open_broker: TlsBroker, authority: Authority, make_daemon: Callable[..., DaemonProcess]
) -> None:
    serve_over_tls(open_broker, make_daemon, lambda _: authority.query(), password=True)


def test_a_pool_works_with_certificates_beside_passwords(
    strict_broker: TlsBroker, authority: Authority, make_daemon: Callable[..., DaemonProcess]
) -> None:
    certificate = authority.issue("some-machine")

    serve_over_tls(strict_broker, make_daemon, lambda _: authority.query(certificate), password=True)


def test_a_pool_works_with_certificates_instead_of_passwords(
    strict_broker: TlsBroker, authority: Authority, make_daemon: Callable[..., DaemonProcess]
) -> None:
    def query(user: str) -> str:
        return authority.query(authority.issue(user)) + "&auth_mechanism=external"

    serve_over_tls(strict_broker, make_daemon, query, password=False)


# --- what the broker refuses ------------------------------------------------------------------------------------------


async def amqp_error(uri: str) -> BrokerError:
    with pytest.raises(BrokerError) as caught:
        await Connection.open(uri, name="test")
    assert PASSWORD not in str(caught.value)
    return caught.value


async def https_error(uri: str) -> str:
    with pytest.raises(ManagementError) as caught:
        await ManagementApi(uri, "/").topology()
    assert PASSWORD not in str(caught.value)
    return str(caught.value)


async def test_a_missing_certificate_is_named_as_such(strict_broker: TlsBroker, authority: Authority) -> None:
    error = await amqp_error(strict_broker.amqps_uri("me", PASSWORD, "%2F", authority.query()))

    assert isinstance(error, TlsFailed)
    assert "certificate of this program" in str(error)
    text = await https_error(strict_broker.https_uri("me", PASSWORD, authority.query()))
    assert "certificate of this program" in text


async def test_a_strangers_certificate_is_refused(
    strict_broker: TlsBroker, authority: Authority, stranger: Authority
) -> None:
    query = authority.query(stranger.issue("me"))

    error = await amqp_error(strict_broker.amqps_uri("me", PASSWORD, "%2F", query))

    assert isinstance(error, TlsFailed)
    assert "certificate of this program" in str(error)
    assert "certificate of this program" in await https_error(strict_broker.https_uri("me", PASSWORD, query))


async def test_a_certificate_of_no_user_says_that_there_is_none(strict_broker: TlsBroker, authority: Authority) -> None:
    query = authority.query(authority.issue("unknown"), auth_mechanism="external")

    error = await amqp_error(strict_broker.amqps_uri("unknown", None, "%2F", query))

    assert isinstance(error, AccessRefused)
    assert "user of the certificate's name" in str(error)


async def test_a_broker_that_offers_no_log_in_by_certificate_says_so(authority: Authority) -> None:
    # Given a broker as it comes: PLAIN and AMQPLAIN, and no plugin for certificates
    certificate = authority.issue("server", addresses=["127.0.0.1"])
    async with fake_broker(tls=certificate.server_context()) as broker:
        query = authority.query(authority.issue("me"), auth_mechanism="external")

        error = await amqp_error(f"amqps://me@127.0.0.1:{broker.port}/?{query}")

    assert isinstance(error, AccessRefused)
    assert "rabbitmq_auth_mechanism_ssl" in str(error)


# --- what we refuse ---------------------------------------------------------------------------------------------------


async def refusals(port: int, query: str, host: str = "127.0.0.1") -> tuple[str, str]:
    error = await amqp_error(f"amqps://me:{PASSWORD}@{host}:{port}/?{query}")
    assert isinstance(error, TlsFailed)
    return str(error), await https_error(f"https://me:{PASSWORD}@{host}:{port}?{query}")


async def test_a_certificate_of_an_unknown_ca_is_refused_with_what_to_do(
    authority: Authority, stranger: Authority
) -> None:
    with listening(authority.issue("server", addresses=["127.0.0.1"])) as port:
        for query, expected in (
            (stranger.query(), f"{stranger.cacertfile} must hold that CA's certificate"),
            ("", "name the file of a private CA by cacertfile in the address"),
        ):
            for text in await refusals(port, query):
                assert "the CA that signed the server's certificate is not known here" in text
                assert expected in text
                assert "is the broker up" not in text


async def test_a_certificate_of_another_host_is_refused_with_what_to_do(authority: Authority) -> None:
    with listening(authority.issue("server", addresses=["127.0.0.1"])) as port:
        for text in await refusals(port, authority.query(), "localhost"):
            assert "localhost" in text
            assert "use a host name that the server's certificate holds" in text


async def test_an_expired_certificate_is_refused_with_what_to_do(authority: Authority) -> None:
    with listening(authority.issue("server", addresses=["127.0.0.1"], days=-1)) as port:
        for text in await refusals(port, authority.query()):
            assert "expired" in text
            assert "renew the server's certificate" in text


async def test_a_ca_that_lacks_what_strict_verification_wants_is_named_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a context as that of Python 3.13, whichever Python this is
    monkeypatch.setattr(ssl, "create_default_context", partial(strictly, ssl.create_default_context))
    lacking = Authority(tmp_path, without=[x509.KeyUsage])
    with listening(lacking.issue("server", addresses=["127.0.0.1"])) as port:
        error = await amqp_error(f"amqps://me:{PASSWORD}@127.0.0.1:{port}/?{lacking.query()}")

    assert "the certificate of the CA that signed the server's has no key usage" in str(error)
    assert "docs/howto/tls.md has the commands" in str(error)
    assert "cacertfile" not in str(error)


def strictly(made: Callable[..., ssl.SSLContext], **given: Any) -> ssl.SSLContext:
    context = made(**given)
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    return context


def test_a_daemon_that_its_own_verification_refuses_logs_it_once_and_a_test_waits_no_longer(
    open_broker: TlsBroker, stranger: Authority, make_daemon: Callable[..., DaemonProcess]
) -> None:
    vhost = "refused"
    open_broker.management.add_vhost(vhost, open_broker.admin)
    pool = Pool.on(open_broker, vhost)
    try:
        daemon = make_daemon(pool, start=False)
        user = pool.users.daemon
        address = open_broker.amqps_uri(user, pool.passwords[user], vhost, stranger.query())
        (daemon.directory / "amqp.uri").write_text(address)
        # When the daemon is waited for, then its reason ends the wait
        with pytest.raises(AssertionError, match=r"^amqps://.* is not known here"):
            daemon.start()
        # And while it tries again and again, then its log has one line
        until(lambda: daemon.sessions_ended() > 3, what="more attempts")
        said = [line for line in daemon.lines() if line["message"] == "the broker cannot be used; trying again"]
        assert len(said) == 1
        assert str(stranger.cacertfile) in said[0]["reason"]
        daemon.close()
    finally:
        pool.remove_users()
        open_broker.management.delete("vhosts", vhost)


@pytest.mark.parametrize("name", ["cacertfile", "certfile"])
@pytest.mark.parametrize("content", [None, "", "no PEM"])
async def test_a_file_that_cannot_be_used_is_named(tmp_path: Path, name: str, content: str | None) -> None:
    path = tmp_path / "file.pem"
    if content is not None:
        path.write_text(content)

    for text in await refusals(1, f"{name}={path}"):
        assert f"{name} {path}" in text


async def test_a_key_that_belongs_to_another_certificate_is_named(authority: Authority) -> None:
    one, other = authority.issue("one"), authority.issue("other")

    for text in await refusals(1, f"certfile={one.certfile}&keyfile={other.keyfile}"):
        assert str(other.keyfile) in text
        assert "belong together" in text


async def test_a_key_that_needs_a_password_is_named_and_no_prompt_asks_for_one(authority: Authority) -> None:
    one = authority.issue("locked")
    key = serialization.load_pem_private_key(one.keyfile.read_bytes(), None)
    one.keyfile.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"password"),
        )
    )

    for text in await refusals(1, f"certfile={one.certfile}&keyfile={one.keyfile}"):
        assert "need no password" in text


@pytest.mark.parametrize(
    "query",
    [
        "keyfile=k",
        "cacertfile=",
        "cacertfile=a&cacertfile=b",
        "auth_mechanism=external",
        "auth_mechanism=kerberos",
        "verify=verify_none",
    ],
)
async def test_options_that_make_no_sense_are_errors(query: str) -> None:
    assert isinstance(await amqp_error(f"amqps://me:{PASSWORD}@127.0.0.1:1/?{query}"), InvalidUri)
    await https_error(f"https://me:{PASSWORD}@127.0.0.1:1?{query}")


async def test_tls_options_without_tls_are_an_error_and_not_ignored(authority: Authority) -> None:
    assert isinstance(await amqp_error(f"amqp://me:{PASSWORD}@127.0.0.1:1/?{authority.query()}"), InvalidUri)
    await https_error(f"http://me:{PASSWORD}@127.0.0.1:1?{authority.query()}")
