"""Queues that the broker lost: what proves it, and the commands that mend it."""

from __future__ import annotations

import shlex
import subprocess
from dataclasses import replace

import pytest

from osrdyne_pool.broker import lost, quorum
from osrdyne_pool.broker.lost import LOOK_AGAIN_SECONDS, Evidence
from osrdyne_pool.settings import PoolSettings
from osrdyne_pool.topology import topology

CORE = topology(PoolSettings("core"))


def test_a_queue_is_lost_after_two_looks_far_enough_apart() -> None:
    one = Evidence().after({"core-orphan": True, "core-dl": False}, 10.0)
    soon = one.after({"core-orphan": True}, 10.0 + LOOK_AGAIN_SECONDS / 2)
    later = soon.after({"core-orphan": True}, 10.0 + LOOK_AGAIN_SECONDS)

    assert one.suspects == {"core-orphan"}
    assert one.lost == frozenset()
    assert soon.lost == frozenset()
    assert later.lost == {"core-orphan"}


def test_a_look_that_did_not_succeed_proves_nothing_and_clears_nothing() -> None:
    one = Evidence().after({"core-orphan": True}, 10.0)

    unknown = one.after({}, 100.0)

    assert unknown.lost == frozenset()
    assert unknown.suspects == {"core-orphan"}
    assert unknown.after({"core-orphan": True}, 101.0).lost == {"core-orphan"}


def test_a_queue_that_has_a_leader_in_between_is_not_a_suspect_any_more() -> None:
    led = Evidence().after({"core-orphan": True}, 10.0).after({"core-orphan": False}, 11.0)

    assert led.suspects == frozenset()
    assert led.after({"core-orphan": True}, 10.0 + 2 * LOOK_AGAIN_SECONDS).lost == frozenset()


def test_what_is_known_to_be_lost_stays_so_until_a_look_shows_a_leader() -> None:
    known = Evidence.known(["core-orphan"], 10.0)

    assert known.lost == {"core-orphan"}
    assert known.after({}, 11.0).after({"core-orphan": True}, 12.0).lost == {"core-orphan"}
    assert known.after({"core-orphan": False}, 11.0).lost == frozenset()


@pytest.mark.parametrize(
    ("vhost", "queue", "expression"),
    [
        ("/", "core-orphan", "ra:trigger_election({'%2F_core-orphan', node()})."),
        ("osrdyne", "core-req-42", "ra:trigger_election({'osrdyne_core-req-42', node()})."),
        ('it\'s "$HOME"', r"a\b", r"""ra:trigger_election({'it\'s "$HOME"_a\\b', node()})."""),
    ],
)
def test_the_command_reaches_rabbitmqctl_as_the_expression(vhost: str, queue: str, expression: str) -> None:
    # A shell of its own, because shlex leaves the backslash in front of a dollar sign
    words = lost.start_election(vhost, queue).replace("rabbitmqctl", "printf '%s\\n'", 1)

    done = subprocess.run(["sh", "-c", words], capture_output=True, text=True, check=True)

    assert done.stdout == f"eval\n{expression}\n"


def test_the_command_for_a_stream_names_vhost_and_stream() -> None:
    command = lost.start_stream('a"b', "core-events")

    assert 'rabbit_misc:r(<<"a\\"b"/utf8>>, queue, <<"core-events"/utf8>>)' in shlex.split(command)[2]


def test_only_static_quorum_queues_are_asked_for_their_members() -> None:
    static = (
        "core-orphan",
        "core-dl",
        "core-poison",
        "core-unanswered",
        "core-waiting",
        "core-parked",
        "core-activity",
    )
    assert lost.static_quorum_queues(CORE) == static


def test_a_stream_is_lost_when_its_binding_is_there_and_it_is_not_listed() -> None:
    others = tuple(queue for queue in CORE.queues if queue.name != "core-events")
    unbound = tuple(binding for binding in CORE.bindings if binding.queue != "core-events")

    assert lost.lost_streams(CORE, replace(CORE, queues=others)) == ("core-events",)
    assert lost.lost_streams(CORE, CORE) == ()
    # Deleted by another program, or not made yet
    assert lost.lost_streams(CORE, replace(CORE, queues=others, bindings=unbound)) == ()


def test_each_static_queue_has_its_mend() -> None:
    said = lost.problems(CORE, "osrdyne")

    assert said.keys() == {queue.name for queue in CORE.queues}
    assert "`rabbitmqctl eval \"ra:trigger_election({'osrdyne_core-dl', node()}).\"`" in said["core-dl"]
    assert "osrdyne_mend_lost_queues=true" in said["core-dl"]
    assert "rabbit_stream_coordinator:new_stream" in said["core-events"]
    assert "mend_lost_queues" not in said["core-events"]


def test_a_member_of_a_lost_queue_is_read_from_what_rabbitmq_answered() -> None:
    answered = {"Node Name": "rabbit@a", "Raft State": "follower", "Membership": "voter", "Last Log Index": 0}

    assert quorum.never_led(quorum.read([{**answered, "Last Written": -1, "Snapshot Index": -1, "Term": 0}]))
    assert not quorum.never_led(quorum.read([{**answered, "Term": 1}]))
