"""The limits of the broker follow from the settings of the pool."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import pytest

from osrdyne_amqp import lanes
from osrdyne_pool import limits
from osrdyne_pool.drift import drift
from osrdyne_pool.settings import PoolLimits, PoolSettings
from osrdyne_pool.topology import needed_to_act, topology
from osrdyne_protocol.errors import SettingsError

POOL = PoolSettings("core", limits=PoolLimits(groups=50, client_connections=10, worker_connections=200))
DECLARED = topology(POOL)


def test_clients_and_workers_have_the_connections_of_the_settings() -> None:
    most = {user.role: user.limits["max-connections"] for user in DECLARED.users}

    assert (most["client"], most["worker"]) == (10, 200)


def test_a_client_may_open_all_the_channels_that_it_uses() -> None:
    # One to publish on, one to consume replies on, and its lanes.
    most = 2 + lanes.AT_WORK + lanes.MOST_LATE

    assert all(user.limits["max-channels"] >= most * user.limits["max-connections"] for user in DECLARED.users)


def test_the_virtual_host_has_room_for_all_groups_and_reply_queues_and_for_all_connections() -> None:
    assert DECLARED.vhost_limits["max-queues"] >= len(DECLARED.queues) + 2 + 50 + 10
    assert DECLARED.vhost_limits["max-connections"] == sum(user.limits["max-connections"] for user in DECLARED.users)


def test_what_several_pools_need_of_one_virtual_host_adds_up() -> None:
    assert limits.together([{"max-queues": 3, "max-connections": 5}, {"max-queues": 4}]) == {
        "max-queues": 7,
        "max-connections": 5,
    }


def test_a_pool_counts_its_neighbours_and_each_of_several_comes_to_the_same_sum() -> None:
    other = PoolSettings("other", limits=PoolLimits(groups=7, client_connections=3, worker_connections=5))

    ours, theirs = (topology(settings) for settings in limits.sharing([POOL, other]))

    alone = [topology(settings).vhost_limits for settings in (POOL, other)]
    assert ours.vhost_limits == theirs.vhost_limits == limits.together(alone)
    written = PoolSettings.from_mapping({"name": "other", "neighbours": {"core": asdict(POOL.limits)}})
    assert topology(written).neighbours == ("core",)


def test_a_pool_that_the_limits_of_its_virtual_host_do_not_count_is_drift() -> None:
    other = topology(PoolSettings("other", limits=PoolLimits(groups=7)))
    both = replace(DECLARED, exchanges=(*DECLARED.exchanges, *other.exchanges))

    (found,) = drift(DECLARED, both)

    assert (found.rule, found.object) == ("neighbour", "pool other")
    assert "pool.neighbours" in found.problem
    # Infrastructure code that knows both pools has counted them, also where the settings of each do not say so.
    counted = replace(both, vhost_limits=limits.together([DECLARED.vhost_limits, other.vhost_limits]))
    assert drift(DECLARED, counted) == []


@pytest.mark.parametrize("neighbours", [{"core": {}}, {"o.ther/": {}}, {"other": 5}, {"other": {"x": 1}}])
def test_a_neighbour_that_is_the_pool_itself_or_no_pool_is_refused(neighbours: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match="neighbours"):
        PoolSettings.from_mapping({"name": "core", "neighbours": neighbours})


@pytest.mark.parametrize(
    ("there", "rule"),
    [({}, "missing"), ({"max-queues": 60}, "differs"), ({"max-queues": 0}, "differs")],
)
def test_a_limit_of_the_virtual_host_that_is_missing_or_too_low_is_drift(there: dict[str, int], rule: str) -> None:
    live = replace(DECLARED, vhost_limits=there)

    found = {finding.object: finding for finding in drift(DECLARED, live)}

    finding = found["limit max-queues of the virtual host"]
    assert finding.rule == rule
    assert "apply the topology" in finding.problem


@pytest.mark.parametrize("there", [86, 1000, -1])
def test_a_limit_that_is_as_high_as_needed_or_higher_is_not_drift(there: int) -> None:
    live = replace(DECLARED, vhost_limits={**DECLARED.vhost_limits, "max-queues": there})

    assert drift(DECLARED, live) == []


def test_limits_of_a_user_that_differ_are_drift_where_users_are_compared() -> None:
    ours, *others = DECLARED.users
    live = replace(DECLARED, users=(replace(ours, role="", limits={}), *others))

    assert drift(DECLARED, live) == []
    (found,) = drift(DECLARED, live, with_users=True)
    assert (found.rule, found.object) == ("differs", f"user {ours.name}")
    assert "limits.max-channels is not set, declared is 1000" in found.problem


def test_a_daemon_acts_on_a_broker_without_limits() -> None:
    without = replace(DECLARED, vhost_limits={})

    assert not [finding for finding in drift(needed_to_act(DECLARED), without) if finding.rule == "missing"]
