"""Any key gets names of its own that every broker and engine can carry."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from osrdyne_pool.settings import PoolSettings
from osrdyne_pool.topology import topology
from osrdyne_protocol import keys
from osrdyne_protocol.errors import InvalidKey, InvalidPoolName
from osrdyne_protocol.names import (
    DatabaseNames,
    PoolNames,
    check_pool_name,
    engine_name,
    is_reply_address,
    reply_queue,
)
from tests import hard_keys

#: With what only a name can get wrong: composed characters, our own hash mark, spaces, other line breaks, a hyphen.
NOTABLE = [
    *hard_keys.KEYS,
    *("e\u0301", "~", "~" + keys.digest("xchg")[:32], "a b", " a", "a\u2028b", "a\x85b", "-"),
]

#: Any key: at most 255 bytes of UTF-8 without NUL.
KEYS = st.one_of(
    st.sampled_from(NOTABLE),
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=255),
).filter(lambda key: len(key.encode()) <= 255)
POOLS = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", fullmatch=True).filter(
    lambda pool: "-req-" not in pool and not pool.endswith("-req") and not re.match("reply(-|$)", pool)
)
unhurried = settings(deadline=None)


# --- keys -------------------------------------------------------------------------------------------------------------


@unhurried
@given(KEYS)
def test_a_key_survives_the_wire_as_text_and_as_bytes(key: str) -> None:
    assert keys.decode(key) == key
    assert keys.decode(key.encode()) == key


@pytest.mark.parametrize(
    ("routing_key", "why"),
    [("a\0b", "NUL"), (b"\0", "NUL"), (b"\xff", "UTF-8"), ("\udcff", "UTF-8"), ("é" * 128, "256 bytes")],
)
def test_a_text_that_no_worker_can_be_given_is_not_a_key(routing_key: str | bytes, why: str) -> None:
    with pytest.raises(InvalidKey, match=why):
        keys.decode(routing_key)


# --- names of queues --------------------------------------------------------------------------------------------------


def as_a_broker_stores_it(name: str) -> str:
    """Brokers strip line breaks from names (docs/reference/rabbitmq-facts.md#line-breaks-in-names)."""
    return name.replace("\n", "").replace("\r", "")


@unhurried
@given(KEYS, KEYS, POOLS)
@example("a\nb", "ab", "core")
@example("a\nb", "a\rb", "core")
@example("xchg", "~" + keys.digest("xchg")[:32], "core")
@example("k" * 255, "k" * 254, "p" * 63)
def test_two_keys_never_share_a_queue(one: str, other: str, pool: str) -> None:
    names = PoolNames(pool)
    same = as_a_broker_stores_it(names.request_queue(one)) == as_a_broker_stores_it(names.request_queue(other))

    assert same == (one == other)


@unhurried
@given(KEYS, POOLS)
def test_the_name_of_a_request_queue_fits_and_is_none_of_the_static_ones(key: str, pool: str) -> None:
    names = PoolNames(pool)
    queue = names.request_queue(key)

    assert len(queue.encode()) <= 255
    assert as_a_broker_stores_it(queue) == queue
    assert queue != names.request_exchange
    assert queue.startswith(names.request_queue_prefix)
    assert names.owns_queue(queue)


@pytest.mark.parametrize("key", ["", "42", "infra=42,timetable=24", "50%", "a/b", "é", "a\u200db", "A", "leader"])
def test_a_safe_key_is_readable_in_the_name_of_its_queue(key: str) -> None:
    assert PoolNames("core").request_queue(key) == f"core-req-{key}"


@pytest.mark.parametrize("key", ["xchg", "~x", "a\nb", "a\x85b", "a\u2028b", "a\u2029b", "k" * 250])
def test_an_unsafe_key_is_a_hash_in_the_name_of_its_queue(key: str) -> None:
    assert re.fullmatch(r"core-req-~[0-9a-f]{32}", PoolNames("core").request_queue(key))


@unhurried
@given(POOLS, POOLS, KEYS)
@example("a", "a-re", "q-")
def test_no_queue_of_a_pool_falls_into_another_pool(one: str, other: str, key: str) -> None:
    if one != other:
        assert not PoolNames(one).owns_queue(PoolNames(other).request_queue(key))


# --- names of pools, engines and reply queues -------------------------------------------------------------------------


@pytest.mark.parametrize("pool", ["core", "a", "0", "a-b", "req", "a-reqx", "p" * 63])
def test_a_pool_name_is_taken(pool: str) -> None:
    assert check_pool_name(pool) == pool


@pytest.mark.parametrize(
    ("pool", "why"),
    [
        ("", "lower-case"),
        ("Core", "lower-case"),
        ("-a", "hyphens"),
        ("a-", "hyphens"),
        ("a_b", "lower-case"),
        ("é", "lower-case"),
        ("a\n", "lower-case"),
        ("p" * 64, "64 bytes long; at most 63"),
        ("a-req-b", "collide"),
        ("a-req", "collide"),
        ("reply", "look like reply queues"),
        ("reply-core", "look like reply queues"),
    ],
)
def test_another_pool_name_is_refused_with_the_reason(pool: str, why: str) -> None:
    with pytest.raises(InvalidPoolName, match=why):
        PoolNames(pool)


#: As RabbitMQ 4.0 and 4.3 write it.
DIRECT = "amq.rabbitmq.reply-to.g1h2AA9yZXBseUAxMzEzNDQxNjQAAARVAAAAAGsIyfM=.Z0nlxAg9qm4JIopSv6eZwg=="


@pytest.mark.parametrize(
    "address", [f"reply-core-client-{'0' * 32}", f"reply-é.é-{'0' * 32}", f"reply-a-req-b-{'0' * 32}", DIRECT]
)
def test_a_reply_goes_to_a_reply_queue_or_to_direct_reply_to(address: str) -> None:
    assert is_reply_address(address)


@pytest.mark.parametrize(
    "address", [None, "", b"reply-a-" + b"0" * 32, b"\xff", "queue", f"reply--{'0' * 32}", "reply-a-00"]
)
def test_a_reply_goes_to_no_other_address(address: str | bytes | None) -> None:
    assert not is_reply_address(address)


@pytest.mark.parametrize(
    "address", [f"reply-a-{'0' * 31}", f"reply-a-{'0' * 33}", f"reply-a-{'A' * 32}", f" reply-a-{'0' * 32}"]
)
def test_a_name_that_only_begins_like_a_reply_queue_is_not_an_address(address: str) -> None:
    assert not is_reply_address(address)
    assert not is_reply_address(f"reply-a-{'0' * 32}\n")


@pytest.mark.parametrize(
    "address",
    [
        "amq.rabbitmq.reply-to",
        "amq.rabbitmq.reply-to.",
        "amq.rabbitmq.reply-to.g1h2AA.Z0nlxAg9qm4JIopSv6eZwg==",
        DIRECT.replace("A9y", "A8y"),
        DIRECT.replace("=.", "."),
        DIRECT[:-1],
        DIRECT + ".x",
        "/queues/" + DIRECT,
    ],
)
def test_a_broken_address_of_direct_reply_to_is_none(address: str) -> None:
    assert not is_reply_address(address)


@unhurried
@given(POOLS, KEYS)
@example("core", "0" * 32)
@example("a-reply-b", "-" + "0" * 32)
def test_no_object_of_a_pool_has_the_name_of_a_reply_queue(pool: str, key: str) -> None:
    declared = topology(PoolSettings(pool))
    static = [*(queue.name for queue in declared.queues), *(exchange.name for exchange in declared.exchanges)]
    names = PoolNames(pool)
    for name in (*static, names.leader_queue, names.poison_lock_queue, names.request_queue(key)):
        assert not is_reply_address(name)


@unhurried
@given(KEYS, KEYS, POOLS)
@example("A", "a", "core")
@example("é", "e", "core")
def test_two_keys_never_share_an_engine_name(one: str, other: str, pool: str) -> None:
    assert (engine_name(pool, "i", one) == engine_name(pool, "i", other)) == (one == other)


def test_pools_and_instances_never_share_an_engine_name() -> None:
    named = {
        engine_name(pool, instance, key) for pool in ("a", "ab") for instance in ("b", "") for key in ("b", "", "bb")
    }

    assert len(named) == 12
    assert engine_name("a", "x", "é") != engine_name("a", "xé", "")


@unhurried
@given(KEYS, POOLS, st.text(max_size=40).filter(lambda text: "\0" not in text and text.isprintable()))
def test_every_engine_can_carry_the_name_of_a_group(key: str, pool: str, instance: str) -> None:
    name = engine_name(pool, instance, key)

    assert re.fullmatch(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?", name)
    assert len(name) <= 63


def test_an_engine_name_can_be_read() -> None:
    name = engine_name("core", "prod", "infra=42,timetable=24")
    # 128 bits: clients choose keys, and of 80 bits they could find two of one name.
    assert re.fullmatch("core-infra-42-timetab-[0-9a-f]{32}", name)


INSTANCES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60)


@pytest.mark.parametrize(
    "pool, instance, database, owner",
    [
        ("core", "default", "core-jobs", "core-jobs-owner"),
        ("core", "prod", "core-jobs.prod", "core-jobs-owner.prod"),
        (
            "core",
            "Alice's laptop",
            "core-jobs.alice-s-laptop~ff9c71f289c4",
            "core-jobs-owner.alice-s-laptop~ff9c71f289c4",
        ),
    ],
)
def test_a_database_and_its_owner_are_named_as_broker_users_are(
    pool: str, instance: str, database: str, owner: str
) -> None:
    assert DatabaseNames.of(pool, instance) == DatabaseNames(database, owner)


@unhurried
@given(POOLS, INSTANCES, POOLS, INSTANCES)
def test_pools_and_instances_never_share_a_database_or_an_owner(
    pool: str, instance: str, other_pool: str, other_instance: str
) -> None:
    one, other = DatabaseNames.of(pool, instance), DatabaseNames.of(other_pool, other_instance)

    shared = {one.database, one.owner} & {other.database, other.owner}
    assert bool(shared) == ((pool, instance) == (other_pool, other_instance))
    assert one.database != one.owner


@unhurried
@given(POOLS, INSTANCES)
def test_postgresql_keeps_a_name_as_it_is_and_a_file_can_carry_it(pool: str, instance: str) -> None:
    names = DatabaseNames.of(pool, instance)

    for name in (names.database, names.owner):
        assert len(name.encode()) <= 63
        assert re.fullmatch(r"[a-z0-9._~-]+", name)


def test_reply_queues_are_the_users_and_never_the_same() -> None:
    made = {reply_queue("core-client") for _ in range(100)}

    assert len(made) == 100
    assert all(re.fullmatch(r"reply-core-client-[0-9a-f]{32}", name) for name in made)
