"""Names of the relay in Redis: one slot an endpoint, no two endpoints alike, and ids that are checked."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from osrdyne_relay.errors import InvalidCall
from osrdyne_relay.redis import names
from osrdyne_relay.redis.names import Names
from osrdyne_relay.redis.transactions import COMMANDS, Lifetimes, Transactions

ENDPOINT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=30)
ID = "f" * 32
NAMES = Names("test")


def tag(key: str) -> str:
    """The part of a key that decides its slot: Redis Cluster specification, "Hash tags"."""
    begin = key.index("{")
    end = key.index("}", begin)
    assert end > begin + 1
    return key[begin + 1 : end]


@given(ENDPOINT, ENDPOINT)
def test_keys_of_two_endpoints_differ_and_those_of_one_share_a_slot(one: str, other: str) -> None:
    def keys(endpoint: str) -> list[str]:
        made = (NAMES.waiting(endpoint), NAMES.life(endpoint), NAMES.pulse(endpoint), NAMES.polled(endpoint))
        return [*made, NAMES.call(endpoint, ID)]

    assert len({tag(key) for key in keys(one)}) == 1
    assert not set(keys(one)) & set(keys(other)) or one == other
    assert all(key.startswith("test:") and key.isascii() for key in keys(one))


def transactions() -> list[list[tuple[str | bytes | int, ...]]]:
    made = Transactions(NAMES, Lifetimes())
    return [
        made.begin_life("e", ID),
        made.enter("e", ID, b"x", 60.0),
        made.look("e", 16),
        made.poll("e", 45.0, first=True),
        made.polled("e"),
        made.drop("e", [b"x"]),
        made.claim("e", ID, "t"),
        made.caller_beat("e", ID, 1, None),
        made.caller_beat("e", ID, 1, 60.0),
        made.server_beat("e", ID, 1),
        made.answer("e", ID, b"r", (ID, b"p")),
        made.withdraw("e", ID, cancel=True),
        made.give_up("e", ID),
        made.bury("e", ID),
        made.pulse(ID, b"p"),
    ]


def test_each_transaction_touches_one_slot_and_gives_each_key_that_it_writes_an_end() -> None:
    writes = {"HSETNX", "HSET", "RPUSH"}
    for commands in transactions():
        keys = {str(command[1]) for command in commands if command[0] != "PUBLISH"}
        assert len({tag(key) for key in keys}) <= 1
        written = {command[1] for command in commands if command[0] in writes}
        assert written <= {command[1] for command in commands if command[0] == "PEXPIRE"}


def test_the_list_of_commands_is_that_of_the_transactions() -> None:
    assert {str(command[0]).lower() for commands in transactions() for command in commands} == COMMANDS


@pytest.mark.parametrize("raw", [b"", b"f" * 31, b"f" * 33, b"F" * 32, b"f" * 31 + b"\n", b"\xff" * 32])
def test_what_is_not_an_id_is_none(raw: bytes) -> None:
    assert names.id_from(raw) is None
    assert names.node_of(raw + b"." + raw) is None


def test_a_token_names_its_node() -> None:
    node = names.new_id()

    assert names.id_from(node.encode()) == node
    assert names.node_of(names.new_token(node).encode()) == node
    assert names.node_of(names.WITHDRAWN.encode()) is None


@pytest.mark.parametrize("endpoint", ["", "a\0b", "x" * 513, "\udc80"])
def test_an_endpoint_that_cannot_be_used_is_refused(endpoint: str) -> None:
    with pytest.raises(InvalidCall, match="endpoint"):
        names.check_endpoint(endpoint)
