"""Addresses of peers, and the settings of a bus."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from osrdyne_bus.addresses.rabbitmq import QueueDeclaration, RabbitMQ, queue_of
from osrdyne_bus.peers import InvalidPeer, Peer, peers_of
from osrdyne_bus.settings import BusSettings
from osrdyne_bus.targets import Priority, Target
from osrdyne_protocol.errors import OsrdyneError


@pytest.mark.parametrize(
    ("address", "peer"),
    [
        ("amqp://router", Peer("router", 5672)),
        ("amqps://router", Peer("router", 5671, tls=True)),
        ("amqp://u:p%2F@[::1]:7/", Peer("::1", 7, "u", "p/")),
        ("amqp://u@host/a%20b", Peer("host", 5672, "u", None, "vhost:a b")),
        ("amqp://host?hostname=tenant%3A1", Peer("host", 5672, hostname="tenant:1")),
    ],
)
def test_an_address_says_host_login_virtual_host_and_tls(address: str, peer: Peer) -> None:
    assert Peer.parse(address) == peer


@pytest.mark.parametrize(
    "address",
    ["router", "http://router", "amqp://", "amqp://h:x", "amqp://h:99999", "amqp://h?vhost=x", "amqp://u:s3cret@h/%ff"],
)
def test_an_address_that_is_none_is_refused_and_not_repeated(address: str) -> None:
    with pytest.raises(InvalidPeer, match="it looks like amqp://user:password@host") as raised:
        Peer.parse(address)
    assert "s3cret" not in str(raised.value)


def test_a_parameter_that_is_not_used_is_named() -> None:
    with pytest.raises(InvalidPeer, match="number 1 behind the"):
        Peer.parse("amqp://h?vhost=x")
    with pytest.raises(InvalidPeer, match="hostname 2 times"):
        Peer.parse("amqp://h?hostname=x&hostname=y")


def test_a_virtual_host_is_named_by_a_path_or_by_a_parameter_and_not_by_both() -> None:
    with pytest.raises(InvalidPeer, match=r"has a path and \?hostname=; give one of them"):
        Peer.parse("amqp://h/tenant?hostname=x")
    assert Peer.parse("amqp://h/?hostname=x").hostname == "x"


def test_a_password_is_in_no_text() -> None:
    assert "s3cret" not in repr(Peer.parse("amqp://u:s3cret@h"))


def test_there_is_at_least_one_peer() -> None:
    assert peers_of("amqp://a") == peers_of(["amqp://a"]) == (Peer("a", 5672),)
    with pytest.raises(InvalidPeer, match="no peer"):
        peers_of([])


@pytest.mark.parametrize(
    "wrong",
    [
        {"reply_credit": 0},
        {"call_timeout": 0.0},
        {"resends": -1},
        {"slots": 0},
        {"root": ""},
        {"root": "/a"},
        {"root": "a/*"},
    ],
)
def test_a_setting_that_cannot_work_is_refused_by_its_name(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=f"^{next(iter(wrong))} is "):
        BusSettings(**wrong)  # type: ignore[arg-type]


def test_rabbitmq_gets_the_queues_of_a_server_and_deletes_its_own_some_time_after_it() -> None:
    target, scheme = Target("m.a", server="n/1"), RabbitMQ()
    shared = queue_of(scheme.shared(target))
    assert shared == QueueDeclaration("unicast.osrdyne.m%2Ea", {"x-queue-type": "quorum"})
    own = queue_of(scheme.server(target))
    assert own.name == "exclusive.osrdyne.m%2Ea.n%2F1"
    assert set(own.arguments) == {"x-queue-type", "x-expires"}
    assert own.exchange is None
    declared = queue_of(scheme.notifications(target, Priority.WARN))
    assert declared == QueueDeclaration("notify.osrdyne.m%2Ea.warn", {"x-queue-type": "quorum"})


def test_rabbitmq_binds_the_queue_of_a_server_to_the_exchange_that_fanouts_are_sent_to() -> None:
    target, scheme = Target("m.a", server="n/1"), RabbitMQ()
    queue = queue_of(scheme.fanout_subscription(target))
    assert queue.exchange == "broadcast.osrdyne.m%2Ea"
    assert scheme.fanout(target) == "/exchanges/broadcast.osrdyne.m%252Ea"
    assert "x-expires" in queue.arguments


def test_a_function_is_asked_for_the_addresses_and_its_errors_show_no_password(tmp_path: Path) -> None:
    file = tmp_path / "uri"
    file.write_text("amqp://u:hunter2@a")
    assert peers_of(file.read_text)[0].password == "hunter2"
    file.write_text("amqp://u:other@a")
    assert peers_of(file.read_text)[0].password == "other"
    file.unlink()
    with pytest.raises(InvalidPeer, match=f"No such file or directory: {file}"):
        peers_of(file.read_text)

    def fails() -> str:
        raise OsrdyneError("is empty")

    with pytest.raises(InvalidPeer, match="is empty"):
        peers_of(fails)
    file.write_bytes(b"amqp://u:hunter2\xff@a")
    with pytest.raises(InvalidPeer, match=r"cannot be read \(UnicodeDecodeError\)") as caught:
        peers_of(file.read_text)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("found", [None, 5, b"amqp://u:hunter2@a", {"amqp://u:hunter2@a"}])
def test_what_is_neither_an_address_nor_several_is_an_invalid_peer_and_not_shown(found: Any) -> None:
    for given in (lambda: found, found):
        with pytest.raises(InvalidPeer, match=r"is \w+, neither text nor a sequence of texts") as caught:
            peers_of(given)
        assert "hunter2" not in str(caught.value)
    with pytest.raises(InvalidPeer, match="is NoneType, not text"):
        peers_of(["amqp://a", None])  # type: ignore[list-item]
