"""Static queues that the broker lost: the stack finds them, refuses to go on, and mends them where it may."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from osrdyne_infra import mend, preflight
from osrdyne_infra.broker import lost_queues
from osrdyne_infra.broker.live import Live
from osrdyne_infra.configuration import StackSettings
from osrdyne_infra.errors import BrokerUnusable, DeploymentRefused
from osrdyne_pool.broker.quorum import Member
from osrdyne_pool.settings import PoolSettings
from osrdyne_pool.topology import Topology, topology
from testbed.broker import DEMO_VERSION, Broker
from testbed.lost_queue import is_lost, lose
from tests.infra import declaring
from tests.infra.conftest import Stack
from tests.infra.test_dev import changes, findings

CORE = topology(PoolSettings("core"))


@dataclass
class StandIn:
    """A broker that says of its queues what a test wants, and keeps what is done to it."""

    lost: set[str] = field(default_factory=set)
    silent: set[str] = field(default_factory=set)
    refusing: bool = False
    done: list[tuple[str, ...]] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def members(self, vhost: str, queue: str) -> tuple[Member, ...]:
        self.asked.append(queue)
        if queue in self.silent:
            raise BrokerUnusable("cannot say")
        return (Member("rabbit@a", "follower", 0, 0) if queue in self.lost else Member("rabbit@a", "leader", 1, 3),)

    def delete_queue(self, vhost: str, queue: str) -> None:
        self.done.append(("delete", queue))
        self.lost.discard(queue)

    def declare_queue(self, vhost: str, queue: str, arguments: dict[str, Any]) -> None:
        if self.refusing:
            raise BrokerUnusable("answers 500")
        self.done.append(("declare", queue, json.dumps(arguments, sort_keys=True)))

    def bind(self, vhost: str, exchange: str, queue: str, routing_key: str) -> None:
        self.done.append(("bind", exchange, queue, routing_key))


class Clock:
    """Time that passes by sleeping, and by nothing else; `meanwhile` is called at each sleep."""

    def __init__(self) -> None:
        self.now = 0.0
        self.meanwhile: Callable[[], None] = lambda: None

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.meanwhile()

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(lost_queues, "time", made)
    return made


def find(broker: StandIn, *queues: str) -> frozenset[str]:
    return lost_queues.find(broker, "osrdyne", queues)


@pytest.mark.fast
def test_queues_that_work_are_asked_once(clock: Clock) -> None:
    broker = StandIn(silent={"core-dl"})

    assert find(broker, "core-orphan", "core-dl") == frozenset()
    assert broker.asked == ["core-orphan", "core-dl"]
    assert clock.now == 0


@pytest.mark.fast
def test_only_what_two_looks_show_is_lost(clock: Clock) -> None:
    broker = StandIn(lost={"core-orphan"})
    assert find(broker, "core-orphan", "core-dl") == {"core-orphan"}
    assert broker.asked == ["core-orphan", "core-dl", "core-orphan"]

    # One that was just being declared
    new = StandIn(lost={"core-orphan"})
    clock.meanwhile = new.lost.clear
    assert find(new, "core-orphan") == frozenset()


def settings(**changes: Any) -> StackSettings:
    return declaring.settings(vhost="dev", kubernetes=None, workers=None, pools=[{"name": "core"}], **changes)


def check(chosen: StackSettings, live: Live) -> None:
    preflight.check(chosen, preflight.topologies(chosen), live)


@pytest.mark.fast
def test_a_stack_with_a_lost_queue_is_refused_with_both_ways_out_unless_it_may_mend_it() -> None:
    live = Live(CORE, lost=frozenset({"core-orphan"}))

    with pytest.raises(DeploymentRefused) as refused:
        check(settings(), live)

    assert "queue core-orphan: the broker lost it when it was killed" in str(refused.value)
    assert "`rabbitmqctl eval \"ra:trigger_election({'dev_core-orphan', node()}).\"`" in str(refused.value)
    assert "`pulumi config set mend_lost_queues true` and `pulumi up`" in str(refused.value)
    check(settings(mend_lost_queues=True), live)
    check(settings(), Live(CORE))


@pytest.mark.fast
def test_a_lost_stream_is_refused_with_the_command_that_brings_it_back() -> None:
    others = tuple(queue for queue in CORE.queues if queue.type != "stream")
    gone = dataclasses.replace(CORE, queues=others)

    for chosen in (settings(), settings(mend_lost_queues=True)):
        with pytest.raises(
            DeploymentRefused, match="queue core-events: the broker has its bindings and does not list it"
        ):
            check(chosen, Live(gone))
    # A vhost where the pool is new has no binding either
    check(settings(), Live(Topology((), (), (), ())))


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Callable[[StandIn], Any]:
    """The provider of the resource, on a stand-in for the broker."""
    # A refusal sets it for Pulumi, whose process ends then; other tests of this process need their stacks.
    monkeypatch.setattr(sys, "tracebacklimit", 1000, raising=False)

    def on(broker: StandIn) -> Any:
        monkeypatch.setattr(mend, "management", lambda props: broker)
        return mend._Mends()

    return on


def inputs(*lost: str) -> dict[str, Any]:
    return {"vhost": "dev", "declared": json.dumps(mend.as_declared(CORE)), "lost": list(lost)}


@pytest.mark.fast
@pytest.mark.usefixtures("clock")
def test_a_lost_queue_is_deleted_and_declared_again_with_its_bindings(provider: Callable[[StandIn], Any]) -> None:
    broker = StandIn(lost={"core-orphan"})
    mends = provider(broker)

    # Of two that were found, one has been mended meanwhile
    made = mends.update("dev", inputs(), inputs("core-orphan", "core-dl"))

    assert broker.done == [
        ("delete", "core-orphan"),
        ("declare", "core-orphan", '{"x-delivery-limit": -1, "x-queue-type": "quorum"}'),
        ("bind", "core-orphan-xchg", "core-orphan", ""),
    ]
    # And there is nothing left to do
    assert made.outs["lost"] == []
    assert not mends.diff("dev", made.outs, inputs()).changes
    assert mends.diff("dev", made.outs, inputs("core-orphan")).changes


@pytest.mark.fast
def test_where_nothing_is_lost_the_broker_is_not_asked(provider: Callable[[StandIn], Any]) -> None:
    broker = StandIn()

    assert provider(broker).create(inputs()).outs["lost"] == []
    assert (broker.asked, broker.done) == ([], [])


@pytest.mark.fast
@pytest.mark.usefixtures("clock")
def test_a_queue_that_could_not_be_declared_again_is_named_with_what_to_do(provider: Callable[[StandIn], Any]) -> None:
    broker = StandIn(lost={"core-dl"}, refusing=True)

    with pytest.raises(BrokerUnusable, match=r"queue core-dl of vhost dev was deleted.*Run `pulumi up --refresh`"):
        provider(broker).update("dev", inputs(), inputs("core-dl"))


def test_a_real_broker_that_lost_queues_is_refused_and_then_mended_by_an_up(
    make_stack: Callable[[Broker], Stack], brokers: Callable[[str], Broker], tmp_path: Path
) -> None:
    stack = make_stack(brokers(DEMO_VERSION))
    stack.must_up()
    lose(stack.broker, stack.vhost, "core-orphan", "core-poison")

    for refused in (stack.preview(), stack.up()):
        assert refused.code != 0
        assert "queue core-orphan: the broker lost it when it was killed" in refused.text
        assert "queue core-poison: the broker lost it when it was killed" in refused.text
        assert "`pulumi config set mend_lost_queues true` and `pulumi up`" in refused.text
        assert "Traceback" not in refused.text
    stack.configure(mend_lost_queues=True)
    # A preview shows it, and does nothing
    assert set(changes(stack).values()) == {"update"}
    assert is_lost(stack.broker.management, stack.vhost, "core-orphan")

    stack.must_up()

    for name in ("core-orphan", "core-poison"):
        assert not is_lost(stack.broker.management, stack.vhost, name)
    assert findings(stack, tmp_path) == []
    assert changes(stack) == {}
    stack.must_up("--refresh", "--expect-no-changes")
