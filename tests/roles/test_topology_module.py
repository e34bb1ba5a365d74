"""The Ansible module osrdyne_topology on a real broker, called as Ansible calls it."""

from __future__ import annotations

import dataclasses
import json
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from osrdyne_pool.broker import lost, management_json
from osrdyne_pool.broker.management import ManagementRefused
from osrdyne_pool.settings import PoolLimits, PoolSettings
from osrdyne_pool.topology import Users, topology
from testbed.lost_queue import is_lost, lose, lose_stream, mend
from testbed.management import Management
from testbed.plugins import plugin, run_module
from testbed.waiting import until
from tests.conftest import Vhost

# In one process, so that only that starts brokers of both versions.
pytestmark = [pytest.mark.xdist_group("topology"), pytest.mark.both_versions]


def password_hash(password: str) -> str:
    """As the role has it made."""
    return str(plugin("filter/osrdyne.py").osrdyne_password_hash(password))


@dataclass
class AppliedPool:
    """A pool on a vhost, and the means to apply it again."""

    vhost: Vhost
    pool: str = field(default_factory=lambda: f"pool-{secrets.token_hex(4)}")
    admin_password: str | None = None
    url: str | None = None
    instance: str = "default"
    mend_lost: bool = False
    vhost_limits: dict[str, int] = field(default_factory=dict)
    neighbours: dict[str, PoolLimits] = field(default_factory=dict)

    def __post_init__(self) -> None:
        users = dataclasses.astuple(Users.of(self.pool, self.instance))
        self.passwords = {name: secrets.token_hex(8) for name in users}

    @property
    def api(self) -> Management:
        return self.vhost.broker.management

    def run(self, *, check: bool = False) -> dict[str, Any]:
        """What the module returns."""
        declared = topology(PoolSettings(self.pool, self.instance, neighbours=self.neighbours))
        arguments: dict[str, Any] = {
            "url": self.url or self.vhost.broker.management_url,
            "admin": self.vhost.broker.admin,
            "admin_password": self.admin_password or self.vhost.broker.admin_password,
            "vhost": self.vhost.name,
            "requests": [
                dataclasses.asdict(request) for request in management_json.requests(declared, self.vhost.name)
            ],
            "lost": lost.problems(declared, self.vhost.name),
            "mend_lost": self.mend_lost,
            "vhost_limits": self.vhost_limits,
            "neighbours": list(self.neighbours),
            "passwords": self.passwords,
            "password_hashes": {name: password_hash(word) for name, word in self.passwords.items()},
            "_ansible_check_mode": check,
            "_ansible_diff": True,
        }
        return run_module("osrdyne_topology", arguments, (arguments["admin_password"], *self.passwords.values()))

    def state(self) -> dict[str, Any]:
        """All that the broker has of this vhost and of the pool's users."""
        definitions = self.api.get("definitions", self.vhost.name)
        kinds = ("policies", "exchanges", "queues", "bindings")
        state = {kind: sorted(definitions[kind], key=json.dumps) for kind in kinds}
        permissions = self.api.get("vhosts", self.vhost.name, "permissions")
        users = [user for user in self.api.get("users") if user["name"] in self.passwords]
        return {**state, "permissions": sorted(permissions, key=json.dumps), "users": users}

    def accepts(self, user: str, password: str) -> bool:
        """Whether the broker lets that user in (the daemon's and the monitor's may use the management API)."""
        try:
            Management(self.vhost.broker.management_url, user, password).get("whoami")
        except ManagementRefused:
            return False
        return True

    def close(self) -> None:
        """Users belong to the broker and outlive the vhost."""
        present = {user["name"] for user in self.api.get("users")}
        for name in present & set(self.passwords):
            self.api.delete("users", name)


@pytest.fixture
def applied(vhost: Vhost) -> Iterator[AppliedPool]:
    """A pool that is not applied yet, on an empty vhost."""
    pool = AppliedPool(vhost)
    yield pool
    pool.close()


def test_a_rehearsal_changes_nothing_and_foretells_what_is_made_and_a_second_run_makes_nothing(
    applied: AppliedPool,
) -> None:
    # Given an empty vhost
    empty = applied.state()
    # When the topology is only rehearsed
    rehearsed = applied.run(check=True)
    # Then nothing is there
    assert applied.state() == empty
    # And it is what the first run makes
    first = applied.run()
    assert rehearsed["changed"]
    assert first["changed"]
    assert first["changes"] == rehearsed["changes"] == [change["after_header"] for change in first["diff"]]
    assert first["diff"] == rehearsed["diff"]
    assert not [change for change in first["diff"] if change["before"]]
    made = applied.state()
    assert {queue["name"] for queue in made["queues"]} >= {
        f"{applied.pool}-{end}" for end in ("orphan", "dl", "activity")
    }
    # And there is nothing left for a second run
    second = applied.run()
    assert not second["changed"]
    assert second["changes"] == second["diff"] == []
    assert applied.state() == made


def test_what_a_person_changed_is_corrected_and_nothing_else_is_touched(applied: AppliedPool) -> None:
    # Given a pool, beside it objects of another owner with similar names
    applied.run()
    pool, vhost, api = applied.pool, applied.vhost.name, applied.api
    other = f"{pool}2"
    api.put("policies", vhost, f"{other}-req", body={"pattern": f"^{other}-", "definition": {"max-length": 7}})
    api.put("queues", vhost, f"{other}-orphan", body={"durable": True, "arguments": {"x-queue-type": "quorum"}})
    wanted = applied.state()
    # When a policy, a permission, a tag and a password of the pool are changed, and a binding and a policy are gone
    api.put("policies", vhost, f"{pool}-req", body={"pattern": "^wrong$", "definition": {"max-length": 1}})
    api.put("permissions", vhost, f"{pool}-client", body={"configure": ".*", "write": ".*", "read": ".*"})
    api.put("users", f"{pool}-worker", body={"password": applied.passwords[f"{pool}-worker"], "tags": "administrator"})
    api.put("users", f"{pool}-daemon", body={"password": "another", "tags": "management"})
    api.delete("policies", vhost, f"{pool}-orphan")
    api.delete("bindings", vhost, "e", f"{pool}-dl-xchg", "q", f"{pool}-dl", "~")
    assert not applied.accepts(f"{pool}-daemon", applied.passwords[f"{pool}-daemon"])
    # Then a run corrects these and says so
    corrected = applied.run()
    assert sorted(corrected["changes"]) == sorted(
        [
            f"policy {pool}-req",
            f"policy {pool}-orphan",
            f"permission {pool}-client",
            f"user {pool}-worker",
            f"user {pool}-daemon",
            f"binding {pool}-dl-xchg to {pool}-dl",
        ]
    )
    shown = {change["after_header"]: (change["before"], change["after"]) for change in corrected["diff"]}
    wanted_word = {"password": "as it is wanted"}
    assert shown[f"user {pool}-worker"] == ({"tags": "administrator", **wanted_word}, {"tags": "", **wanted_word})
    daemon = {"tags": "management"}
    assert shown[f"user {pool}-daemon"] == ({**daemon, "password": "another"}, {**daemon, **wanted_word})
    before, after = shown[f"policy {pool}-req"]
    assert (before["pattern"], before["definition"]) == ("^wrong$", {"max-length": 1})
    assert before.keys() == after.keys()
    assert shown[f"binding {pool}-dl-xchg to {pool}-dl"][0] == {}
    assert applied.accepts(f"{pool}-daemon", applied.passwords[f"{pool}-daemon"])
    assert not applied.accepts(f"{pool}-daemon", "another")
    found = applied.state()
    # Salts are new, all else is as it was: what is not the pool's too
    assert [(user["name"], user["tags"]) for user in found.pop("users")] == [
        (user["name"], user["tags"]) for user in wanted.pop("users")
    ]
    assert found == wanted


def test_what_cannot_be_done_is_refused_with_what_to_do(applied: AppliedPool) -> None:
    # Given a queue of another type under a name of the pool's
    orphan = f"{applied.pool}-orphan"
    classic = {"durable": True, "arguments": {"x-queue-type": "classic"}}
    applied.api.put("queues", applied.vhost.name, orphan, body=classic)
    # Then it is neither altered nor deleted
    refused = applied.run()
    assert refused["failed"]
    assert f"queue {orphan}" in refused["msg"]
    assert "delete it by hand" in refused["msg"]
    assert applied.api.get("queues", applied.vhost.name, orphan)["type"] == "classic"
    # And a wrong password and a wrong address say so
    applied.admin_password = "wrong-password"
    assert "wrong password" in applied.run()["msg"]
    applied.url = "http://127.0.0.1:1"
    assert "nothing answers at http://127.0.0.1:1" in applied.run()["msg"]


def test_a_user_that_serves_the_same_pool_in_another_vhost_keeps_its_password(applied: AppliedPool) -> None:
    # Given a pool of this name in another vhost of the broker
    elsewhere = f"{applied.vhost.name}-elsewhere"
    applied.api.add_vhost(elsewhere, applied.vhost.broker.admin)
    try:
        daemon = f"{applied.pool}-daemon"
        applied.api.put("users", daemon, body={"password": "theirs", "tags": "management"})
        applied.api.put("permissions", elsewhere, daemon, body={"configure": "", "write": "", "read": ""})
        # When the pool is applied here
        refused = applied.run()
        # Then it is refused, and the other pool's daemon is not shut out
        assert refused["failed"]
        assert elsewhere in refused["msg"]
        assert applied.accepts(daemon, "theirs")
    finally:
        applied.api.delete("vhosts", elsewhere)


def test_two_instances_of_a_pool_each_in_its_vhost_have_users_of_their_own(applied: AppliedPool) -> None:
    # Given one instance, in its vhost
    one = dataclasses.replace(applied, instance="alice")
    other = dataclasses.replace(applied, instance="bob's laptop")
    elsewhere = dataclasses.replace(applied.vhost, name=f"{applied.vhost.name}-elsewhere")
    try:
        assert one.run()["changed"]
        # When another comes into the same vhost
        refused = other.run()
        # Then it is refused with what to do, and nothing has changed
        assert refused["failed"]
        assert f"{applied.pool}-daemon.alice" in refused["msg"]
        assert "name another vhost" in refused["msg"]
        assert refused["changes"] == []
        # And in a vhost of its own it has users of its own
        other.vhost = elsewhere
        assert other.run()["changed"]
        for pool in (one, other):
            assert all(pool.accepts(name, pool.passwords[name]) for name in pool.passwords if "-daemon" in name)
    finally:
        for pool in (one, other):
            pool.close()
        applied.api.delete("vhosts", elsewhere.name)


def test_users_of_an_earlier_set_up_are_named_and_left_alone(applied: AppliedPool) -> None:
    # Given a pool of a time when users' names had no instance
    applied.run()
    # When it is applied with one
    named = dataclasses.replace(applied, instance="dev")
    try:
        outcome = named.run()
        # Then the old users stay, for workers that still run, and are said to be left over
        assert outcome["left_over"] == sorted(applied.passwords)
        assert "delete them once nothing uses them" in str(outcome["warnings"])
        assert applied.accepts(f"{applied.pool}-daemon", applied.passwords[f"{applied.pool}-daemon"])
    finally:
        named.close()


@pytest.fixture
def losing(losing_vhost: Vhost) -> Iterator[AppliedPool]:
    """A pool that is applied, on the version that loses queues."""
    pool = AppliedPool(losing_vhost)
    pool.run()
    yield pool
    pool.close()


@pytest.mark.full
def test_queues_that_the_broker_lost_are_refused_with_advice_and_made_again_if_allowed(
    losing: AppliedPool,
) -> None:
    api, broker, vhost = losing.api, losing.vhost.broker, losing.vhost.name
    orphan, poison, letters = (f"{losing.pool}-{end}" for end in ("orphan", "poison", "dl"))
    wanted = losing.state()
    # Given two queues that the broker lost, and a policy that a person deleted (of a lost queue, that takes 30 s)
    api.delete("policies", vhost, orphan)
    lose(broker, vhost, orphan, poison)
    # Then a run refuses to go on, says what to do, and changes nothing
    refused = losing.run()
    assert refused["failed"]
    assert f"queue {orphan}: the broker lost it when it was killed" in refused["msg"]
    assert f"queue {poison}: the broker lost it" in refused["msg"]
    assert letters not in refused["msg"]
    assert "-e osrdyne_mend_lost_queues=true" in refused["msg"]
    assert refused["changes"] == []
    # And what it says mends the first one: it begins an election, which takes a moment
    mend(broker, refused["msg"])
    until(lambda: not is_lost(api, vhost, orphan), what="an elected leader")
    # Where it is allowed, a rehearsal foretells what a run does with the other one
    losing.mend_lost = True
    rehearsed = losing.run(check=True)
    assert is_lost(api, vhost, poison)
    done = losing.run()
    assert done["changes"] == rehearsed["changes"]
    assert done["changes"] == [
        f"queue {poison}, which the broker lost, deleted",
        f"policy {orphan}",
        f"queue {poison}",
    ]
    assert not is_lost(api, vhost, poison)
    # And all is as it was
    assert losing.state() == wanted
    assert not losing.run()["changed"]


@pytest.mark.full
def test_a_queue_that_is_made_again_gets_its_bindings_back(losing: AppliedPool) -> None:
    letters = f"{losing.pool}-dl"
    wanted = losing.state()
    lose(losing.vhost.broker, losing.vhost.name, letters)
    losing.mend_lost = True

    done = losing.run()

    binding = f"binding {letters}-xchg to {letters}"
    assert done["changes"] == [f"queue {letters}, which the broker lost, deleted", f"queue {letters}", binding]
    assert losing.state() == wanted


def test_a_stream_that_the_broker_lost_is_refused_with_the_command_that_brings_it_back(losing: AppliedPool) -> None:
    events = f"{losing.pool}-events"
    lose_stream(losing.vhost.broker, losing.vhost.name, events)

    for losing.mend_lost in (False, True):
        refused = losing.run()

        assert refused["failed"]
        assert f"queue {events}: the broker has its bindings and does not list it" in refused["msg"]
        assert "rabbit_stream_coordinator:new_stream" in refused["msg"]


def test_a_pool_of_an_earlier_version_gets_its_new_queues_and_limits_and_keeps_its_messages(
    applied: AppliedPool,
) -> None:
    # Given a pool as it was before, with an orphan and a dead letter
    applied.run()
    pool, vhost, api = applied.pool, applied.vhost.name, applied.api
    now = {policy["name"]: policy for policy in applied.state()["policies"]}
    for kind, name in (
        *(("policies", f"{pool}-{end}") for end in ("dl", "parked", "unanswered", "waiting")),
        *(("queues", f"{pool}-{end}") for end in ("parked", "unanswered", "waiting")),
        ("exchanges", f"{pool}-parked-xchg"),
    ):
        api.delete(kind, vhost, name)
    for end, added in (("orphan", "delivery-limit"), ("poison", "max-length-bytes")):
        former = now[f"{pool}-{end}"]
        definition = {name: value for name, value in former["definition"].items() if name != added}
        api.put("policies", vhost, f"{pool}-{end}", body={**former, "definition": definition})
    for end in ("orphan", "dl", "poison"):
        body = {"properties": {}, "routing_key": f"{pool}-{end}", "payload": "kept", "payload_encoding": "string"}
        api.call("POST", "exchanges", vhost, "amq.default", "publish", body=body)

    # When it is applied
    assert applied.run()["changed"]

    # Then the queues are the same ones, with their messages, and under the limits
    limits = (("orphan", "delivery-limit", 100), ("dl", "delivery-limit", 300), ("poison", "max-length-bytes", 10**9))
    for end, name, limit in limits:

        def limited(queue: str = f"{pool}-{end}", name: str = name, limit: int = limit) -> bool:
            found = api.get("queues", vhost, queue)
            in_effect = found.get("effective_policy_definition") or {}
            return bool(found.get("messages") == 1 and in_effect.get(name) == limit)

        until(limited, what=f"the limit of {end}")
    for end in ("parked", "unanswered", "waiting"):
        assert api.queue(vhost, f"{pool}-{end}") is not None
    assert not applied.run()["changed"]


def test_limits_of_users_and_vhost_are_set_and_a_vhosts_higher_limit_stays(applied: AppliedPool) -> None:
    declared = topology(PoolSettings(applied.pool, applied.instance))
    # When a pool is applied
    applied.run()
    # Then the broker has its limits
    users = {user["name"]: user["limits"] for user in applied.state()["users"]}
    assert users == {user.name: user.limits for user in declared.users}
    assert limits_of(applied) == declared.vhost_limits
    # And those of a vhost that was applied before there were limits, or with other ones, are mended
    user, queues = declared.users[0].name, declared.vhost_limits["max-queues"]
    applied.api.delete("user-limits", user, "max-connections")
    applied.api.call("PUT", "vhost-limits", applied.vhost.name, "max-queues", body={"value": 3})
    applied.api.call("PUT", "vhost-limits", applied.vhost.name, "max-connections", body={"value": 10**6})
    changes = applied.run()["changes"]
    assert changes == [
        f"limit max-queues of vhost {applied.vhost.name}: {queues}",
        f"limit max-connections of user {user}: {declared.users[0].limits['max-connections']}",
    ]
    assert limits_of(applied) == {"max-queues": queues, "max-connections": 10**6}
    # And a vhost that several pools share gets what its playbook says
    applied.vhost_limits = {"max-queues": 2 * queues}
    applied.run()
    assert limits_of(applied)["max-queues"] == 2 * queues
    assert not applied.run()["changed"]


def test_a_vhost_of_several_pools_gets_the_sum_and_a_pool_that_it_does_not_count_is_refused(
    vhost: Vhost, applied: AppliedPool
) -> None:
    second = AppliedPool(vhost)
    try:
        applied.run()
        before = second.state()
        refused = second.run()
        assert refused["failed"]
        assert applied.pool in refused["msg"]
        assert "neighbours" in refused["msg"]
        assert second.state() == before
        # Once each names the other, either sets what both need
        second.neighbours, applied.neighbours = {applied.pool: PoolLimits()}, {second.pool: PoolLimits()}
        second.run()
        alone = topology(PoolSettings(applied.pool)).vhost_limits
        assert limits_of(applied) == {name: 2 * least for name, least in alone.items()}
        assert not applied.run()["changed"]
    finally:
        second.close()


def limits_of(applied: AppliedPool) -> dict[str, int]:
    return dict(applied.api.get("vhost-limits", applied.vhost.name)[0]["value"])
