"""Static queues that the broker lost: what the daemon says of them, and that it waits for those that it consumes."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field

import pytest

from osrdyne.broker.management_api import ManagementApi
from osrdyne.broker.static_queues import StaticQueues
from osrdyne.errors import ManagementError
from osrdyne.session import _unless_ended
from osrdyne.state.pool import PoolState
from osrdyne.status import view as status_view
from osrdyne_amqp.errors import BrokerError, ConnectionLost
from osrdyne_pool.broker.lost import LOOK_AGAIN_SECONDS
from osrdyne_pool.broker.quorum import Member
from osrdyne_protocol.names import PoolNames
from tests.unit.stand_ins import StandInBroker, StandInConnection, state_of

LED = (Member("rabbit@a", "leader", 1, 2),)
LOST = (Member("rabbit@a", "follower", 0, 0),)

pytestmark = pytest.mark.looptime


@dataclass
class Members(ManagementApi):
    """What a broker says of the members of each queue."""

    vhost: str = "osrdyne"
    lost: set[str] = field(default_factory=set)
    missing: set[str] = field(default_factory=set)
    silent: set[str] = field(default_factory=set)
    asked: list[str] = field(default_factory=list)

    async def members(self, queue: str) -> tuple[Member, ...] | None:
        self.asked.append(queue)
        await asyncio.sleep(0.001)
        if queue in self.silent:
            raise ManagementError("cannot say")
        if queue in self.missing:
            return None
        return LOST if queue in self.lost else LED


def static_queues(state: PoolState, broker: Members) -> StaticQueues:
    return StaticQueues(state, broker)


def said(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(line.getMessage(), line.__dict__["queue"]) for line in caplog.records if line.name.endswith("queues")]


async def test_a_session_with_working_queues_begins_after_one_look() -> None:
    state, broker = state_of(), Members(missing={"core-poison"}, silent={"core-dl"})

    await static_queues(state, broker).usable()

    assert sorted(broker.asked) == ["core-activity", *sorted(PoolNames("core").counted)]
    assert asyncio.get_running_loop().time() < LOOK_AGAIN_SECONDS
    assert state.lost.static == {}


@pytest.mark.parametrize("queue", ["core-orphan", "core-dl"])
async def test_a_session_waits_for_a_lost_queue_that_it_consumes_until_it_is_mended(
    queue: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    state, broker = state_of(), Members(lost={queue})
    waiting = asyncio.ensure_future(static_queues(state, broker).usable())
    # It takes a second look to say so
    await asyncio.sleep(LOOK_AGAIN_SECONDS / 2)
    assert state.lost.static == {}
    await asyncio.sleep(LOOK_AGAIN_SECONDS)
    assert state.lost.static.keys() == {queue}
    assert f"ra:trigger_election({{'osrdyne_{queue}'" in state.lost.static[queue]
    # However long that takes, and while the broker cannot say
    await asyncio.sleep(600)
    broker.silent = {queue}
    await asyncio.sleep(600)
    assert not waiting.done()
    assert state.lost.static.keys() == {queue}
    broker.silent, broker.lost = set(), set()
    await waiting
    assert state.lost.static == {}
    # One line when it begins, one when it ends
    assert said(caplog) == [
        ("a static queue is lost; a person has to mend it", queue),
        ("a static queue that was lost works again", queue),
    ]


@pytest.mark.parametrize("queue", ["core-poison", "core-unanswered", "core-waiting", "core-parked", "core-activity"])
async def test_a_lost_queue_that_a_session_can_do_without_is_reported_and_keeps_it_from_nothing(queue: str) -> None:
    state, broker = state_of(), Members(lost={queue})
    queues = static_queues(state, broker)

    await queues.usable()
    # The next look comes soon, and proves it
    assert queues.pause(60.0) == LOOK_AGAIN_SECONDS
    await asyncio.sleep(LOOK_AGAIN_SECONDS)
    await queues.look()
    assert state.lost.static.keys() == {queue}
    broker.lost = set()
    await queues.look()
    assert state.lost.static == {}
    assert queues.pause(60.0) == 60.0


async def test_the_next_session_knows_what_is_lost_and_does_not_say_it_again(caplog: pytest.LogCaptureFixture) -> None:
    state, broker = state_of(), Members(lost={"core-orphan"})
    state.lost.static = {"core-orphan": "what to do"}
    queues = static_queues(state, broker)

    await queues.look()

    assert state.lost.static.keys() == {"core-orphan"}
    assert said(caplog) == []


async def test_a_connection_that_ends_while_a_session_waits_ends_the_wait() -> None:
    class EndingConnection(StandInConnection):
        async def wait_closed(self) -> BrokerError:
            await asyncio.sleep(100)
            return ConnectionLost("gone")

    state, broker, connection = state_of(), Members(lost={"core-orphan"}), EndingConnection(StandInBroker())

    with pytest.raises(ExceptionGroup) as raised:
        await _unless_ended(connection, asyncio.Event(), static_queues(state, broker).usable())

    assert "connection to the broker lost: gone" in str(raised.value.exceptions[0])


async def test_status_and_readiness_say_which_queue_is_lost_and_what_to_do() -> None:
    state = state_of()

    def shown(phase: str) -> tuple[str, str | None, list[str], str | None]:
        document = status_view.document(state, instance="x", phase=phase, detail=None, owns_workers=True, late=0.0)
        lost = list(document["static_queues_lost"])
        return document["state"], document["detail"], lost, status_view.not_ready(state, phase, None)

    assert shown("leading") == ("leading", None, [], None)
    state.lost.static = {"core-orphan": "mend it"}
    words = "queue core-orphan: mend it"
    assert shown("leading") == ("leading", words, ["core-orphan"], f"leading: {words}")
    assert shown("preparing") == ("waiting", words, ["core-orphan"], f"waiting: {words}")
    assert shown("connecting") == ("connecting", None, ["core-orphan"], "connecting")
    # What a daemon that stands by has seen is old
    assert shown("standby") == ("standby", None, [], None)
