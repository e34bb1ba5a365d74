"""Addresses of targets: no two alike, none within the space of another, whatever the names are."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import unquote

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from osrdyne_bus.addresses import SCHEMES, Brokered, Qpid, RabbitMQ, Routable, Scheme, scheme_for
from osrdyne_bus.errors import InvalidTarget, MessagingError
from osrdyne_bus.targets import Priority, Target

#: Few letters, so that names are often alike or begin alike, and all that separates words on any peer.
AWKWARD = st.text("ab/.%2E#*$é", min_size=1, max_size=6)
ANY = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=8)
NAMES = AWKWARD | ANY
TARGETS = st.builds(Target, topic=NAMES, exchange=NAMES, server=NAMES)
EACH = pytest.mark.parametrize("scheme", [make() for make in SCHEMES.values()], ids=SCHEMES)


def addresses(scheme: Scheme, target: Target) -> Iterator[tuple[tuple[str, ...], str]]:
    """Each address of a target, with all that it stands for."""
    topic = (target.exchange, target.topic)
    server = (*topic, str(target.server))
    yield ("any", *topic), scheme.shared(target)
    yield ("one", *server), scheme.server(target)
    yield ("all", *topic), scheme.fanout(target)
    for priority in Priority:
        yield ("notify", *topic, priority), scheme.notifications(target, priority)


@EACH
@given(TARGETS, TARGETS)
def test_what_stands_for_two_things_has_two_addresses(scheme: Scheme, one: Target, other: Target) -> None:
    found: dict[str, tuple[str, ...]] = {}
    for meant, address in (*addresses(scheme, one), *addresses(scheme, other)):
        assert found.setdefault(address, meant) == meant


@EACH
@given(TARGETS, TARGETS)
def test_no_address_is_the_beginning_of_the_words_of_another(scheme: Scheme, one: Target, other: Target) -> None:
    all_of_them = {address for target in (one, other) for _, address in addresses(scheme, target)}

    for address in all_of_them:
        assert not [within for within in all_of_them if within.startswith((f"{address}/", f"{address}."))]


@EACH
@given(TARGETS)
def test_an_address_is_ascii_without_wildcards(scheme: Scheme, target: Target) -> None:
    for _, address in addresses(scheme, target):
        assert address.isascii()
        assert not set(address) & set("*#$ ")


@given(TARGETS)
def test_every_name_comes_back_out_of_a_routable_address(target: Target) -> None:
    *_, exchange, topic, server = Routable("root").server(target).split("/")

    assert (unquote(exchange), unquote(topic), unquote(server)) == (target.exchange, target.topic, target.server)


@given(TARGETS)
def test_the_queue_of_rabbitmq_has_the_name_that_the_scheme_of_brokers_gives(target: Target) -> None:
    assert unquote(RabbitMQ().shared(target).removeprefix("/queues/")) == Brokered().shared(target)


@given(TARGETS, NAMES)
def test_servers_of_a_topic_share_what_is_for_any_or_all_of_them_and_nothing_else(target: Target, name: str) -> None:
    assume(name != target.server)
    other = Target(target.topic, target.exchange, name)

    for scheme in (make() for make in SCHEMES.values()):
        assert scheme.shared(target) == scheme.shared(other)
        assert scheme.fanout(target) == scheme.fanout(other)
        assert scheme.server(target) != scheme.server(other)
    assert RabbitMQ().fanout_subscription(target) != RabbitMQ().fanout_subscription(other)


def test_rpc_and_notifications_have_spaces_of_their_own_below_the_root() -> None:
    target = Target("maps", "flights", "a")

    assert [address for _, address in addresses(Routable("example/bus"), target)][:4] == [
        "example/bus/rpc/anycast/flights/maps",
        "example/bus/rpc/unicast/flights/maps/a",
        "example/bus/rpc/multicast/flights/maps",
        "example/bus/notify/anycast/flights/maps.audit",
    ]


def test_addresses_of_brokers_begin_with_what_is_behind_them() -> None:
    target = Target("maps", "a.b", "é")

    assert [address for _, address in addresses(Brokered(), target)][:4] == [
        "unicast.a%2Eb.maps",
        "exclusive.a%2Eb.maps.%C3%A9",
        "broadcast.a%2Eb.maps",
        "notify.a%2Eb.maps.audit",
    ]
    assert RabbitMQ().shared(target) == "/queues/unicast.a%252Eb.maps"
    assert RabbitMQ().fanout(target) == "/exchanges/broadcast.a%252Eb.maps"
    assert RabbitMQ().fanout_subscription(target) == "/queues/broadcast.a%252Eb.maps.%25C3%25A9"


def test_qpid_has_queues_of_brokers_and_sends_to_all_over_its_exchange_for_topics() -> None:
    target = Target("maps", "a.b", "é")

    assert [address for _, address in addresses(Qpid(), target)][:4] == [
        "unicast.a%2Eb.maps",
        "exclusive.a%2Eb.maps.%C3%A9",
        "amq.topic/broadcast.a%2Eb.maps",
        "notify.a%2Eb.maps.audit",
    ]
    assert Qpid().fanout_subscription(target) == Qpid().fanout(target)


@given(TARGETS)
def test_a_link_asks_a_broker_for_a_topic_for_all_receivers_and_for_a_queue_for_one(
    target: Target,
) -> None:
    for (kind, *_), address in addresses(Brokered(), target):
        assert Brokered().capabilities(address) == (("topic",) if kind == "all" else ("queue",))
        for scheme in (Routable(), RabbitMQ(), Qpid()):
            assert scheme.capabilities(address) == ()
    assert Brokered().capabilities("a reply address") == ()


def test_a_name_too_long_for_rabbitmq_is_refused_with_what_to_shorten() -> None:
    RabbitMQ().shared(Target("t" * 120, "e" * 120))
    with pytest.raises(InvalidTarget, match="has 264 bytes, and 255 are allowed; shorten exchange, topic or server"):
        RabbitMQ().shared(Target("t" * 128, "e" * 127))


@EACH
def test_a_target_without_a_server_has_no_address_of_one(scheme: Scheme) -> None:
    for address in (scheme.server, scheme.fanout_subscription):
        with pytest.raises(InvalidTarget, match="the target 'maps' of 'osrdyne' names no server; give it `server`"):
            address(Target("maps"))


@pytest.mark.parametrize(
    "product, scheme",
    [
        ("RabbitMQ", RabbitMQ),
        ("apache-activemq-artemis", Brokered),
        ("Apache Qpid Broker-J Core", Qpid),
        ("qpid-cpp", Brokered),
        ("qpid-dispatch-router", Routable),
        ("skupper-router", Routable),
        ("something new", Routable),
        (None, Routable),
    ],
)
def test_what_a_peer_says_of_itself_chooses_the_scheme(product: str | None, scheme: type[object]) -> None:
    properties: dict[object, object] = {} if product is None else {"product": product}

    assert isinstance(scheme_for("dynamic", properties), scheme)


@pytest.mark.parametrize("name, scheme", sorted(SCHEMES.items()))
def test_a_setting_overrides_what_a_peer_says(name: str, scheme: type[object]) -> None:
    assert isinstance(scheme_for(name, {"product": "RabbitMQ"}), scheme)
    assert isinstance(scheme_for(name, {"product": "qpid-dispatch-router"}), scheme)


def test_a_scheme_that_there_is_not_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(
        MessagingError, match="no address scheme 'mesh'; there are dynamic, routable, brokered, rabbitmq, qpid"
    ):
        scheme_for("mesh", {})


def test_routable_addresses_begin_with_the_root_that_is_set_and_others_have_none() -> None:
    target = Target("maps", exchange="openstack", server="n")
    oslo = scheme_for("dynamic", {"product": "skupper-router"}, "openstack.org/om")

    assert oslo.server(target) == "openstack.org/om/rpc/unicast/openstack/maps/n"
    assert oslo.sends_settled(oslo.fanout(target))
    assert not oslo.sends_settled(oslo.shared(target))
    assert scheme_for("rabbitmq", {}, "openstack.org/om").shared(target) == RabbitMQ().shared(target)
