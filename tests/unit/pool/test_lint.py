"""The linter finds what a broker accepts silently: each rule fires on a minimal bad topology, none on ours."""

from __future__ import annotations

from dataclasses import replace

import pytest

from osrdyne_pool.lint import effective, lint, matches
from osrdyne_pool.settings import PoolSettings
from osrdyne_pool.topology import (
    Binding,
    Exchange,
    Policy,
    Queue,
    Topology,
    Users,
    request_queue_arguments,
    sample_request_queues,
    topology,
)

OURS = topology(PoolSettings("core"))
#: A topology in which nothing is wrong and nothing is policed.
GOOD = Topology((Exchange("x", "direct"),), (Queue("q"),), (Binding("x", "q"),), ())
ROUTE = {"dead-letter-exchange": "x", "dead-letter-strategy": "at-least-once", "overflow": "reject-publish"}


def rules(found: Topology, request_queues: tuple[str, ...] = ()) -> list[str]:
    return [finding.rule for finding in lint(found, request_queues)]


def with_policies(*policies: Policy) -> Topology:
    return replace(GOOD, policies=policies)


def test_nothing_is_found_where_nothing_is_wrong() -> None:
    assert rules(GOOD) == []
    assert rules(with_policies(Policy("p", "^q$", "quorum_queues", ROUTE)), ("q-1",)) == ["no-dead-letter-route"]


@pytest.mark.parametrize("pool", ["core", "a", "a-b", "p" * 63])
def test_nothing_is_found_in_our_own_topology(pool: str) -> None:
    ours = topology(PoolSettings(pool))

    assert lint(ours, [f"{pool}-req-{key}" for key in ("", "42", "xch", "leader")]) == []


def test_nothing_is_found_where_several_of_our_pools_share_a_vhost() -> None:
    pools = [topology(PoolSettings(name)) for name in ("a", "a-b", "b")]
    both = Topology(
        tuple(exchange for pool in pools for exchange in pool.exchanges),
        tuple(queue for pool in pools for queue in pool.queues),
        tuple(binding for pool in pools for binding in pool.bindings),
        tuple(policy for pool in pools for policy in pool.policies),
    )

    assert lint(both, [queue for pool in ("a", "a-b", "b") for queue in sample_request_queues(pool)]) == []


BAD = {
    "policy-overlap": with_policies(
        Policy("p", "^q", "queues", {"max-length": 1}, 5), Policy("r", "^q$", "queues", {"expires": 1}, 5)
    ),
    "policy-unanchored": with_policies(Policy("p", "q$", "queues", {"max-length": 1})),
    "policy-pattern": with_policies(Policy("p", "^(q", "queues", {"max-length": 1})),
    "queue-key-in-exchange-policy": with_policies(Policy("p", "^x$", "exchanges", {"dead-letter-exchange": "x"})),
    "exchange-key-in-queue-policy": with_policies(Policy("p", "^q$", "queues", {"alternate-exchange": "x"})),
    "queue-type-in-policy": with_policies(Policy("p", "^q$", "queues", {"queue-type": "quorum"})),
    "no-dead-letter-route": with_policies(Policy("p", "^x$", "exchanges", {"alternate-exchange": "x"})),
    "dead-letter-route-ends": with_policies(Policy("p", "^q$", "queues", {**ROUTE, "dead-letter-exchange": "y"})),
    "dead-letter-at-most-once": with_policies(Policy("p", "^q$", "queues", {"dead-letter-exchange": "x"})),
    "argument-type": with_policies(Policy("p", "^q$", "queues", {"max-length": "1"})),
    "name-too-long": replace(GOOD, exchanges=(Exchange("x" * 256, "direct"),), bindings=()),
}


@pytest.mark.parametrize("rule", BAD)
def test_a_rule_fires_alone_on_a_minimal_bad_topology(rule: str) -> None:
    assert rules(BAD[rule]) == [rule]


@pytest.mark.parametrize("rule", BAD)
def test_a_finding_names_the_object_and_says_what_is_wrong(rule: str) -> None:
    found = lint(BAD[rule])[0]

    assert found.object.split()[0] in ("policy", "policies", "queue", "exchange")
    assert len(found.problem) > 20


@pytest.mark.parametrize("pattern", ["q$", "a|^b", "^a|b", "(^a)|b", ".*", "", "[|]^q", r"\|^q"])
def test_an_alternative_without_anchor_is_found(pattern: str) -> None:
    assert "policy-unanchored" in rules(with_policies(Policy("p", pattern, "queues", {"max-length": 1})))


@pytest.mark.parametrize("pattern", ["^q$", "^a|^b", "^(a|b)", "^[|]", r"^a\|b", "^[a]|^b"])
def test_a_pattern_of_anchored_alternatives_is_none(pattern: str) -> None:
    assert rules(with_policies(Policy("p", pattern, "queues", {"max-length": 1}))) == []


def test_policies_of_different_priority_may_overlap() -> None:
    first, second = (Policy(name, "^q", "queues", {"max-length": 1}, number) for name, number in (("p", 1), ("r", 2)))

    assert rules(with_policies(first, second)) == []


def test_policies_that_overlap_only_on_a_request_queue_are_found() -> None:
    catch_all = Policy("ha", "^", "all", {"max-length": 5})

    found = [
        finding
        for finding in lint(replace(OURS, policies=(*OURS.policies, catch_all)))
        if finding.rule == "policy-overlap"
    ]

    assert "policies core-req and ha" in {finding.object for finding in found}


def test_a_pattern_that_leaves_some_request_queues_out_is_found() -> None:
    narrow = tuple(
        replace(policy, pattern="^core-req-[0-9a-z=,]*$") if policy.name == "core-req" else policy
        for policy in OURS.policies
    )

    found = lint(replace(OURS, policies=narrow))

    assert {finding.rule for finding in found} == {"no-dead-letter-route"}
    assert all(finding.object.startswith("queue core-req-~") for finding in found)


@pytest.mark.parametrize(("key", "value"), [("x-delivery-limit", "5"), ("x-dead-letter-exchange", 1), ("x-max-age", 7)])
def test_an_argument_of_the_wrong_type_is_found(key: str, value: int | str) -> None:
    assert "argument-type" in rules(replace(GOOD, queues=(Queue("q", arguments={key: value}),)))


def test_a_boolean_is_not_a_number() -> None:
    assert rules(replace(GOOD, queues=(Queue("q", arguments={"x-max-length": True}),))) == ["argument-type"]


def test_a_dead_letter_exchange_without_a_queue_is_found() -> None:
    ends = replace(GOOD, bindings=(), policies=(Policy("p", "^q$", "queues", ROUTE),))

    assert [finding.problem for finding in lint(ends)] == [
        "dead-letter exchange 'x' has no queue; declare it and bind a queue to it"
    ]


# --- which policy wins ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("apply_to", "kinds"),
    [
        ("exchanges", {"exchange"}),
        ("queues", {"quorum", "classic", "stream", "something new"}),
        ("quorum_queues", {"quorum"}),
        ("classic_queues", {"classic"}),
        ("streams", {"stream"}),
        ("all", {"exchange", "quorum", "classic", "stream", "something new"}),
        ("something new", set()),
    ],
)
def test_a_policy_applies_to_the_kinds_that_it_names(apply_to: str, kinds: set[str]) -> None:
    policy = Policy("p", "^q", apply_to, {})  # type: ignore[arg-type] # a live broker may know more than we do
    everything = {"exchange", "quorum", "classic", "stream", "something new"}

    assert {kind for kind in everything if matches(policy, kind, "q")} == kinds


def test_a_pattern_matches_anywhere_unless_it_is_anchored() -> None:
    assert matches(Policy("p", "q", "queues", {}), "quorum", "a-q-b")
    assert not matches(Policy("p", "^q$", "queues", {}), "quorum", "a-q-b")


def test_the_highest_priority_wins() -> None:
    low, high, other = (
        Policy("l", "^q", "queues", {}, 1),
        Policy("h", "^q", "queues", {}, 2),
        Policy("o", "^x", "all", {}, 9),
    )

    assert effective([low, high, other], "quorum", "q") is high
    assert effective([other], "quorum", "q") is None


# --- the topology itself ----------------------------------------------------------------------------------------------


def test_two_calls_return_the_same_topology() -> None:
    assert topology(PoolSettings("core")) == OURS


def test_no_pattern_of_a_pool_takes_anothers_objects() -> None:
    other = topology(PoolSettings("core-b"))
    names = [
        *(("exchange", exchange.name) for exchange in other.exchanges),
        *((queue.type, queue.name) for queue in other.queues),
    ]
    names += [("quorum", queue) for queue in sample_request_queues("core-b")]

    assert [policy for policy in OURS.policies for kind, name in names if matches(policy, kind, name)] == []


def test_the_users_can_have_other_names() -> None:
    users = Users("c", "w", "d", "m")
    named = topology(PoolSettings("core"), users)

    assert (
        [user.name for user in named.users]
        == [permission.user for permission in named.permissions]
        == ["c", "w", "d", "m"]
    )
    assert [user.role for user in named.users] == ["client", "worker", "daemon", "monitor"]


def test_settings_reach_the_policies_in_the_brokers_units() -> None:
    settings = PoolSettings(
        "core", message_ttl=1.5, orphan_ttl=2, consumer_timeout=60, delivery_limit=3, events_max_age=90
    )
    policies = {policy.name: policy.definition for policy in topology(settings).policies}

    assert policies["core-req"]["message-ttl"] == 1500
    assert policies["core-req"]["consumer-timeout"] == 60_000
    assert policies["core-req"]["delivery-limit"] == 3
    assert policies["core-orphan"]["message-ttl"] == 2000
    assert policies["core-events"]["max-age"] == "90s"


def test_a_request_queue_carries_its_key() -> None:
    assert request_queue_arguments("a\nb") == {"x-queue-type": "quorum", "x-osrdyne-key": "a\nb"}
