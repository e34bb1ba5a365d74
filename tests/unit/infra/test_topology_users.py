"""Names of a pool's broker users: users belong to the broker, so each instance of a pool has its own."""

from __future__ import annotations

import dataclasses
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from osrdyne_pool.settings import PoolSettings
from osrdyne_pool.topology import Users, topology
from osrdyne_protocol.names import reply_queue

INSTANCES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=255).filter(
    lambda text: len(text.encode()) <= 255
)


@pytest.mark.parametrize(
    "instance, client",
    [
        ("default", "core-client"),
        ("prod", "core-client.prod"),
        ("dev-alice-laptop", "core-client.dev-alice-laptop"),
        ("Alice's laptop", "core-client.alice-s-laptop~ff9c71f289c4"),
    ],
)
def test_users_carry_the_instance_where_one_is_named(instance: str, client: str) -> None:
    made = topology(PoolSettings("core", instance))

    assert made.users[0].name == client
    assert [permission.user for permission in made.permissions] == [user.name for user in made.users]


@given(INSTANCES, INSTANCES)
def test_two_instances_never_share_a_user(one: str, other: str) -> None:
    shared = set(dataclasses.astuple(Users.of("core", one))) & set(dataclasses.astuple(Users.of("core", other)))

    assert bool(shared) == (one == other)


def test_an_instance_that_looks_like_another_made_readable_has_users_of_its_own() -> None:
    imitated = Users.of("core", "Alice's laptop").client.partition(".")[2]

    assert Users.of("core", imitated).client != Users.of("core", "Alice's laptop").client


@given(INSTANCES)
def test_a_reply_queue_and_a_file_can_carry_the_name_of_any_user(instance: str) -> None:
    for name in dataclasses.astuple(Users.of("p" * 63, instance)):
        assert len(reply_queue(name).encode()) <= 255
        assert re.fullmatch(r"[A-Za-z0-9._~-]+", name)
