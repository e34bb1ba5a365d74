"""The Ansible module runs without our packages: its evidence for a lost queue is that of osrdyne_protocol."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import pytest

from osrdyne_pool.broker import lost, quorum
from testbed.plugins import plugin


@pytest.fixture(scope="module")
def module() -> Any:
    return plugin("modules/osrdyne_topology.py")


@dataclass
class AnsweringBroker:
    """A broker with one answer."""

    answer: Any
    error: Exception | None = None

    def get(self, *path: str) -> Any:
        if self.error is not None:
            raise self.error
        return self.answer


def test_it_looks_again_after_the_same_time(module: Any) -> None:
    assert module.LOOK_AGAIN_SECONDS == lost.LOOK_AGAIN_SECONDS


def test_it_judges_members_alike(module: Any) -> None:
    members = [
        {"Node Name": "rabbit@a", "Raft State": state, "Term": term, "Last Log Index": index}
        for state, term, index in itertools.product(("follower", "leader", "noproc"), (0, 1, ""), (0, 1, ""))
    ]
    for answer in ([], *([member] for member in members), *map(list, itertools.combinations(members, 2))):
        assert module.never_led(AnsweringBroker(answer), "v", "q") == quorum.never_led(quorum.read(answer)), answer


def test_a_queue_of_unknown_state_is_not_lost_and_an_unreachable_broker_is_reported(
    module: Any,
) -> None:
    assert not module.never_led(AnsweringBroker(None), "v", "q")
    assert not module.never_led(AnsweringBroker(None, module.TopologyRefused("503")), "v", "q")
    with pytest.raises(module.Unreachable):
        module.never_led(AnsweringBroker(None, module.Unreachable("away")), "v", "q")
