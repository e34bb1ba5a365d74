"""Which other users of a virtual host speak against those of a pool."""

from __future__ import annotations

import pytest

from osrdyne_pool.broker.changes import refusals
from osrdyne_pool.settings import PoolSettings
from osrdyne_pool.topology import Topology, topology


def declared(instance: str) -> Topology:
    return topology(PoolSettings("core", instance))


@pytest.mark.parametrize(("ours", "there"), [("b", "default"), ("default", "b"), ("a", "b")])
def test_another_instance_in_the_virtual_host_is_refused_whichever_is_the_default(ours: str, there: str) -> None:
    (said,) = refusals(declared(ours), declared(there), "v")

    users = ", ".join(sorted(granted.user for granted in declared(there).permissions))
    assert said.startswith(f"virtual host v holds another instance of this pool, with the users {users}, and")


def test_users_of_the_same_instance_and_of_others_are_not_refused() -> None:
    assert [*refusals(declared("b"), declared("b"), "v")] == []
    (said,) = refusals(declared("b"), topology(PoolSettings("core-client")), "v")
    assert said.startswith("virtual host v holds pool core-client, too")
