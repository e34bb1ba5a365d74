"""Drift: what a live broker has is compared with what is declared, down to which policy really wins."""

from __future__ import annotations

from dataclasses import replace

import pytest

from osrdyne_pool.drift import concerning, drift, request_queues
from osrdyne_pool.lint import Finding, lint
from osrdyne_pool.settings import PoolSettings
from osrdyne_pool.topology import (
    Binding,
    Exchange,
    Permission,
    Policy,
    Queue,
    Topology,
    User,
    request_queue_arguments,
    sample_request_queues,
    topology,
)

OURS = topology(PoolSettings("core"))


def live(**changes: tuple[object, ...]) -> Topology:
    """Return what a broker lists that has our topology, something of others, and these changes."""
    there = replace(
        OURS,
        pool="",
        exchanges=(*OURS.exchanges, Exchange("amq.direct", "direct"), Exchange("other", "topic")),
        queues=(*OURS.queues, Queue("other", "classic"), request_queue("42")),
        bindings=(*OURS.bindings, Binding("other", "other", "#"), Binding("core-req-xchg", "core-req-42", "42")),
        policies=(*OURS.policies, Policy("others", "^other", "all", {"max-length": 5}, 100)),
    )
    return replace(there, **changes)  # type: ignore[arg-type] # tuples of the field's own kind


def request_queue(key: str) -> Queue:
    arguments = {name: value for name, value in request_queue_arguments(key).items() if name != "x-queue-type"}
    return Queue(f"core-req-{key}", arguments=arguments)


def without(values: tuple[object, ...], name: str) -> tuple[object, ...]:
    return tuple(value for value in values if getattr(value, "name", None) != name)


def said(findings: list[Finding]) -> list[tuple[str, str]]:
    return [(finding.rule, finding.object) for finding in findings]


def test_a_broker_as_declared_has_no_drift_whatever_else_is_on_it() -> None:
    assert drift(OURS, live()) == []
    assert drift(OURS, live(), with_users=True) == []


@pytest.mark.parametrize(
    ("part", "name", "kind"),
    [
        ("exchanges", "core-orphan-xchg", "exchange"),
        ("queues", "core-dl", "queue"),
        ("policies", "core-orphan", "policy"),
    ],
)
def test_a_missing_object_is_found(part: str, name: str, kind: str) -> None:
    found = drift(OURS, live(**{part: without(getattr(live(), part), name)}))

    assert said(found) == [("missing", f"{kind} {name}")]


def test_a_missing_binding_is_found() -> None:
    found = drift(OURS, live(bindings=tuple(binding for binding in live().bindings if binding.queue != "core-orphan")))

    assert said(found) == [("missing", "binding core-orphan-xchg -> core-orphan")]


@pytest.mark.parametrize(
    ("part", "name", "change", "said_so"),
    [
        ("exchanges", "core-req-xchg", {"type": "fanout"}, "type is 'fanout', declared is 'direct'"),
        ("queues", "core-orphan", {"arguments": {}}, "arguments.x-delivery-limit is not set, declared is -1"),
        ("queues", "core-dl", {"type": "classic"}, "type is 'classic', declared is 'quorum'"),
        ("policies", "core-req", {"priority": 3}, "priority is 3, declared is 10"),
    ],
)
def test_a_changed_object_is_found_with_both_values(
    part: str, name: str, change: dict[str, object], said_so: str
) -> None:
    changed = tuple(
        replace(finding, **change) if finding.name == name else finding for finding in getattr(live(), part)
    )
    found = [finding for finding in drift(OURS, live(**{part: changed})) if finding.rule == "differs"]

    assert [finding.object.split()[1] for finding in found] == [name]
    assert said_so in found[0].problem


def test_only_the_values_of_a_table_that_differ_are_named_each_with_what_is_declared() -> None:
    definition = {**OURS.policies[1].definition, "delivery-limit": 20, "expires": 5}
    del definition["overflow"]
    changed = (replace(OURS.policies[1], definition=definition),)
    found = drift(OURS, live(policies=(*OURS.policies[:1], *changed, *OURS.policies[2:])))

    (problem,) = [finding.problem for finding in found if finding.rule == "differs"]
    assert problem == (
        "definition.overflow is not set, declared is 'reject-publish', definition.delivery-limit is 20, declared is 5, "
        "definition.expires is 5, declared is not set; apply the topology"
    )


# --- the policy that wins ---------------------------------------------------------------------------------------------


def overridden(*foreign: Policy, **changes: tuple[object, ...]) -> dict[str, str]:
    found = drift(OURS, live(policies=(*live().policies, *foreign), **changes))
    assert {finding.rule for finding in found} <= {"overridden"}
    return {finding.object: finding.problem for finding in found}


def test_a_foreign_policy_of_higher_priority_is_found_on_every_object_it_takes() -> None:
    found = overridden(Policy("ha", "^core-(orphan|req-xchg)$", "all", {"max-length": 5}, 11))

    assert found.keys() == {"exchange core-req-xchg", "queue core-orphan"}
    assert "overridden by policy ha (priority 11" in found["queue core-orphan"]
    assert "in place of core-orphan (priority 10)" in found["queue core-orphan"]


def test_request_queues_that_do_not_exist_yet_are_judged_by_samples() -> None:
    found = overridden(Policy("ha", "^core-req-", "quorum_queues", {"max-length": 5}, 11))

    assert found.keys() == {f"queue {name}" for name in sample_request_queues("core")}


def test_a_policy_for_one_live_request_queue_is_found() -> None:
    found = overridden(
        Policy("mine", "^core-req-7$", "queues", {"max-length": 5}, 11), queues=(*live().queues, request_queue("7"))
    )

    assert found.keys() == {"queue core-req-7"}


def test_a_policy_of_equal_priority_may_win() -> None:
    found = overridden(Policy("ha", "^core-orphan$", "queues", {"max-length": 5}, 10))

    assert "may be overridden by policy ha" in found["queue core-orphan"]


def test_a_policy_of_lower_priority_does_no_harm_to_what_has_its_own() -> None:
    assert overridden(Policy("ha", "^core-(orphan|req-)", "queues", {"max-length": 5}, 9)) == {}


def test_a_policy_on_what_is_declared_without_one_is_found_at_any_priority() -> None:
    found = overridden(Policy("ha", "^", "all", {"message-ttl": 5}, 0))

    assert "where none is declared" in found["exchange core-dl-xchg"]
    assert "queue core-orphan" not in found


def test_the_strongest_of_several_is_named() -> None:
    found = overridden(
        *(Policy(f"p{number}", "^core-poison$", "queues", {"expires": 5}, number) for number in (20, 30, 25))
    )

    assert "by policy p30" in found["queue core-poison"]


def test_a_policy_of_ours_that_is_missing_is_missing_and_not_overridden() -> None:
    there = (*without(live().policies, "core-orphan"), Policy("ha", "^core-orphan$", "queues", {"max-length": 5}, 3))

    assert said(drift(OURS, live(policies=there))) == [("missing", "policy core-orphan")]


def test_a_foreign_pattern_that_python_cannot_read_does_not_stop_the_comparison() -> None:
    assert overridden(Policy("odd", "^(core", "all", {"max-length": 5}, 99)) == {}


def test_an_operator_policy_that_changes_what_is_declared_is_found() -> None:
    operator = Policy("cap", "^core-(orphan|dl)$", "queues", {"message-ttl": 600_000, "max-length": 9})
    found = {finding.object: finding.problem for finding in drift(OURS, live(operator_policies=(operator,)))}

    assert found.keys() == {"queue core-orphan", "queue core-dl"}
    assert "operator policy cap, which sets max-length 9;" in found["queue core-orphan"]


def test_an_operator_policy_that_sets_the_same_is_none() -> None:
    operator = Policy("cap", "^core-orphan$", "queues", {"message-ttl": 600_000})

    assert drift(OURS, live(operator_policies=(operator,))) == []


# --- strangers in the pool's names ------------------------------------------------------------------------------------


def test_a_binding_that_takes_requests_away_is_found() -> None:
    found = drift(OURS, live(bindings=(*live().bindings, Binding("core-req-xchg", "other", "42"))))

    assert said(found) == [("foreign-binding", "binding core-req-xchg -> other")]
    assert "key '42'" in found[0].problem


@pytest.mark.parametrize("exchange", ["core-orphan-xchg", "core-dl-xchg"])
@pytest.mark.parametrize(
    "binding",
    [
        Binding("", "audit"),
        Binding("", "audit", "42"),
        Binding("", "core-req-42", "42"),
        Binding("", "tap", "", "exchange"),
    ],
)
def test_what_copies_orphans_or_dead_letters_is_found(exchange: str, binding: Binding) -> None:
    found = drift(OURS, live(bindings=(*live().bindings, replace(binding, exchange=exchange))))

    assert said(found) == [("foreign-binding", f"binding {exchange} -> {binding.queue}")]
    assert f"copies every message of {exchange}" in found[0].problem
    assert ("an exchange" in found[0].problem) == (binding.to == "exchange")


def test_an_exchange_that_takes_requests_is_found_whatever_its_name() -> None:
    found = drift(OURS, live(bindings=(*live().bindings, Binding("core-req-xchg", "core-req-42", "42", "exchange"))))

    assert said(found) == [("foreign-binding", "binding core-req-xchg -> core-req-42")]


def test_another_listener_to_activity_is_not_a_stranger() -> None:
    assert drift(OURS, live(bindings=(*live().bindings, Binding("core-activity-xchg", "dashboard")))) == []


@pytest.mark.parametrize(
    "queue",
    [
        Queue("core-req-7"),
        Queue("core-req-7", arguments={"x-osrdyne-key": "8"}),
        Queue("core-req-7", "classic", {"x-osrdyne-key": "7"}),
    ],
)
def test_a_queue_that_only_has_the_name_of_a_request_queue_is_found(queue: Queue) -> None:
    found = drift(OURS, live(queues=(*live().queues, queue)))

    assert said(found) == [("foreign-queue", "queue core-req-7")]


# --- users ------------------------------------------------------------------------------------------------------------


def test_users_and_permissions_are_compared_when_asked() -> None:
    users = tuple(replace(user, tags=("administrator",)) if user.name == "core-daemon" else user for user in OURS.users)
    permissions = tuple(
        replace(permission, write=".*") if permission.user == "core-client" else permission
        for permission in OURS.permissions[:-1]
    )
    there = live(users=users, permissions=permissions)

    assert drift(OURS, there) == []
    found = drift(OURS, there, with_users=True)
    assert said(found) == [
        ("differs", "user core-daemon"),
        ("differs", "permission of core-client"),
        ("missing", "permission of core-pipeline"),
    ]
    assert "write is '.*', declared is '^core-req-xchg$'" in found[1].problem


def test_guest_with_the_password_guest_is_found_when_users_are_compared() -> None:
    there = replace(live(), default_login="user guest has the password guest")

    assert drift(OURS, there) == []
    found = Finding("default-login", "user guest", "user guest has the password guest")
    assert drift(OURS, there, with_users=True) == [found]


def test_a_user_that_can_send_as_the_daemon_is_found_when_users_are_compared() -> None:
    there = replace(live(), users=(*live().users, User("foreign", "", ("monitoring", "impersonator"))))

    assert drift(OURS, there) == []
    (found,) = drift(OURS, there, with_users=True)
    assert (found.rule, found.object) == ("impersonator", "user foreign")


def test_the_order_of_tags_and_the_users_of_others_are_not_drift() -> None:
    ours = replace(OURS, users=(User("core-daemon", "daemon", ("a", "b")),), permissions=())
    there = live(
        users=(User("core-daemon", "", ("b", "a")), User("other", "")), permissions=(Permission("o", "", "", ""),)
    )

    assert drift(ours, there, with_users=True) == []


# --- what lint is given of a live broker ------------------------------------------------------------------------------


def test_mistakes_in_objects_of_others_are_not_reported() -> None:
    unanchored = Policy("bad", "other", "all", {"dead-letter-exchange": "gone"}, 3)
    twin = Policy("twin", "other", "all", {}, 3)
    part = concerning(OURS, live(policies=(*live().policies, unanchored, twin)))

    assert lint(part, ["core-req-42"]) == []


def test_a_foreign_policy_that_matches_ours_is_judged() -> None:
    catch_all = Policy("all", ".*", "queues", {"max-length": 5}, 10)
    part = concerning(OURS, live(policies=(*live().policies, catch_all)))

    assert {finding.rule for finding in lint(part, ["core-req-42"])} >= {"policy-unanchored", "policy-overlap"}


def test_request_queues_are_found_by_their_name() -> None:
    assert [queue.name for queue in request_queues("core", live())] == ["core-req-42"]
