"""Which channel a message leaves on: a destination that has not answered delays no other. Under virtual time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from osrdyne_amqp import lanes as module
from osrdyne_amqp.errors import (
    BrokerError,
    BrokerTimeout,
    ChannelClosed,
    ConnectionLost,
    Nacked,
    PreconditionFailed,
    Returned,
)
from osrdyne_amqp.lanes import AT_WORK, GIVE_UP_SECONDS, LATE_SECONDS, MOST_LATE, WINDOW, Lanes
from tests.unit.stand_ins import retrieve, until

pytestmark = pytest.mark.looptime

#: Seconds that a broker takes for a confirm here.
CONFIRM_SECONDS = 0.01


@dataclass
class Broker:
    """Works on what each channel publishes one after the other, as RabbitMQ does."""

    #: Destinations that do not answer.
    lost: set[str] = field(default_factory=set)
    #: What it says of a destination instead of a confirm.
    says: dict[str, BrokerError] = field(default_factory=dict)
    #: Destination and body, in the order of their arrival in a queue.
    arrived: list[tuple[str, int]] = field(default_factory=list)
    channels: list[Channel] = field(default_factory=list)
    #: Seconds that a confirm takes.
    confirm: float = CONFIRM_SECONDS
    #: An alarm.
    blocked: bool = False
    #: Raised instead of opening a channel.
    refuses: BrokerError | None = None

    async def channel(self) -> Any:
        await asyncio.sleep(CONFIRM_SECONDS)
        if self.refuses is not None:
            raise self.refuses
        self.channels.append(Channel(self))
        return self.channels[-1]

    def heal(self, destination: str) -> None:
        """The queue is deleted: what waits for it is refused."""
        self.lost.discard(destination)
        for channel in self.channels:
            channel.go_on()

    def channels_with(self, destination: str) -> list[Channel]:
        return [channel for channel in self.channels if any(sent[0] == destination for sent in channel.sent)]


class Channel:
    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.is_open = True
        self.sent: list[tuple[str, int]] = []
        self._waiting: list[tuple[str, int, asyncio.Future[None]]] = []
        self._working = False
        self._stalled = False

    def publish(self, destination: str, number: int) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.sent.append((destination, number))
        self._waiting.append((destination, number, future))
        self.go_on()
        return future

    def go_on(self) -> None:
        if self._working or not self._waiting or self._waiting[0][0] in self.broker.lost:
            self._stalled = self._stalled or (not self._working and bool(self._waiting))
            return
        self._working = True
        asyncio.get_running_loop().call_later(self.broker.confirm, self._settle)

    def _settle(self) -> None:
        self._working = False
        if not self._waiting:
            return
        destination, number, future = self._waiting.pop(0)
        if self._stalled:  # as the broker does with what waited for a queue that is gone
            self._stalled = False
            future.set_exception(Nacked())
        elif destination in self.broker.says:
            future.set_exception(self.broker.says[destination])
        else:
            self.broker.arrived.append((destination, number))
            future.set_result(None)
        self.go_on()

    async def close(self) -> None:
        self.fail(ChannelClosed("closed by this program"))

    def fail(self, reason: BrokerError) -> None:
        self.is_open = False
        waiting, self._waiting = self._waiting, []
        for _, _, future in waiting:
            future.set_exception(reason.again())


@pytest.fixture
def broker() -> Broker:
    return Broker()


@pytest.fixture
async def lanes(broker: Broker) -> AsyncIterator[Lanes]:
    """Lanes that end with their connection, and with all that a test left waiting."""
    made = Lanes(await broker.channel(), broker.channel, blocked=lambda: broker.blocked)
    yield made
    broker.refuses = ConnectionLost("the test has ended")
    while made._proving:
        for opened in broker.channels:
            opened.fail(broker.refuses)
        await asyncio.sleep(CONFIRM_SECONDS)
    await asyncio.gather(*made._tasks)


def publish(lanes: Lanes, destination: str, number: int = 0) -> asyncio.Future[Any]:
    def send(channel: Any) -> asyncio.Future[Any]:
        confirm: asyncio.Future[Any] = channel.publish(destination, number)
        return confirm

    outcome = lanes.publish(destination, send)
    outcome.add_done_callback(retrieve)
    return outcome


async def took(*futures: asyncio.Future[Any]) -> float:
    began = asyncio.get_running_loop().time()
    await asyncio.gather(*futures, return_exceptions=True)
    return asyncio.get_running_loop().time() - began


async def test_a_destination_shares_one_channel_once_it_has_answered(broker: Broker, lanes: Lanes) -> None:
    for destination in ("a", "b"):
        await publish(lanes, destination)
        await publish(lanes, destination)
    main, lane = broker.channels
    assert (main.sent, lane.sent) == ([("a", 0), ("b", 0)], [("a", 0), ("b", 0)])
    shared: Any = lanes.shared("a")
    assert shared is main


@pytest.mark.parametrize("answer", [Nacked(), Returned("no queue")])
async def test_a_refusal_that_comes_at_once_is_an_answer(broker: Broker, lanes: Lanes, answer: BrokerError) -> None:
    broker.says["a"] = answer
    await took(publish(lanes, "a"))
    assert lanes.shared("a") is not None


async def test_one_that_does_not_answer_delays_no_other(broker: Broker, lanes: Lanes) -> None:
    broker.lost.add("lost")
    lost = publish(lanes, "lost")
    others = [publish(lanes, f"key-{number}", again) for again in range(3) for number in range(50)]
    assert await took(*others) < LATE_SECONDS
    assert not lost.done()


async def test_one_that_does_not_answer_delays_those_that_had_answered_before_not_at_all(
    broker: Broker, lanes: Lanes
) -> None:
    await publish(lanes, "well")
    broker.lost.add("lost")
    publish(lanes, "lost")
    assert await took(publish(lanes, "well")) == pytest.approx(CONFIRM_SECONDS)


async def test_the_messages_of_one_destination_arrive_in_order(broker: Broker, lanes: Lanes) -> None:
    futures = []
    for number in range(5 * WINDOW):
        futures.append(publish(lanes, "a", number))
        if number % 7 == 0:
            await asyncio.sleep(CONFIRM_SECONDS)
    await asyncio.gather(*futures)
    assert broker.arrived == [("a", number) for number in range(5 * WINDOW)]
    assert len(broker.channels_with("a")) == 2


async def test_a_lane_holds_few_messages_of_one_that_does_not_answer(broker: Broker, lanes: Lanes) -> None:
    broker.lost.add("lost")
    for number in range(10 * WINDOW):
        publish(lanes, "lost", number)
    await asyncio.sleep(2 * LATE_SECONDS)
    for number in range(10 * WINDOW):
        publish(lanes, "lost", number)
    await asyncio.sleep(LATE_SECONDS)
    assert sum(len(channel.sent) for channel in broker.channels) == WINDOW


async def test_one_that_was_lost_goes_on_in_order_once_it_is_made_again(broker: Broker, lanes: Lanes) -> None:
    broker.lost.add("a")
    waiting = [publish(lanes, "a", number) for number in range(WINDOW + 3)]
    await asyncio.sleep(5 * LATE_SECONDS)
    broker.heal("a")
    outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    assert isinstance(outcomes[0], Nacked)
    assert outcomes[1:] == [None] * (WINDOW + 2)
    assert broker.arrived == [("a", number) for number in range(1, WINDOW + 3)]
    assert lanes.shared("a") is not None


async def test_a_message_given_up_before_its_turn_is_not_sent(broker: Broker, lanes: Lanes) -> None:
    broker.lost.add("a")
    publish(lanes, "a", 0)
    await asyncio.sleep(2 * LATE_SECONDS)
    given_up, waiting = publish(lanes, "a", 1), publish(lanes, "a", 2)
    given_up.cancel()
    broker.heal("a")
    await waiting
    assert broker.arrived == [("a", 2)]


async def test_a_message_given_up_after_it_was_sent_keeps_its_lane_busy_until_the_broker_answers(
    broker: Broker, lanes: Lanes
) -> None:
    broker.lost.add("a")
    first = publish(lanes, "a", 0)
    await asyncio.sleep(2 * CONFIRM_SECONDS)
    first.cancel()
    assert await took(publish(lanes, "b")) < LATE_SECONDS
    assert [sent for opened in broker.channels_with("a") for sent in opened.sent] == [("a", 0)]


async def test_as_many_as_may_be_late_still_leave_lanes_for_others(broker: Broker, lanes: Lanes) -> None:
    broker.lost = {f"lost-{number}" for number in range(MOST_LATE - 1)}
    for destination in sorted(broker.lost):
        publish(lanes, destination)
    await asyncio.sleep(10 * LATE_SECONDS)
    assert await took(publish(lanes, "well")) < LATE_SECONDS
    assert len(broker.channels) <= 1 + AT_WORK + MOST_LATE


async def test_however_many_do_not_answer_the_channels_are_bounded_and_the_proven_go_on(
    broker: Broker, lanes: Lanes
) -> None:
    await publish(lanes, "well")
    broker.lost = {f"lost-{number}" for number in range(1000)}
    for destination in sorted(broker.lost):
        publish(lanes, destination)
    await asyncio.sleep(10 * LATE_SECONDS)
    assert len(broker.channels) <= 1 + AT_WORK + MOST_LATE
    assert await took(publish(lanes, "well")) == pytest.approx(CONFIRM_SECONDS)


async def test_a_lane_that_the_broker_closes_costs_only_what_was_on_it(broker: Broker, lanes: Lanes) -> None:
    broker.lost.add("bad")
    bad = publish(lanes, "bad")
    await asyncio.sleep(2 * CONFIRM_SECONDS)
    (lane,) = broker.channels_with("bad")
    lane.fail(PreconditionFailed("too large", code=406))
    with pytest.raises(PreconditionFailed):
        await bad
    await publish(lanes, "well")
    assert lane not in broker.channels_with("well")


async def test_what_waited_for_its_turn_behind_a_message_that_closed_the_lane_is_sent_on_another(
    broker: Broker, lanes: Lanes
) -> None:
    broker.lost.add("a")
    publish(lanes, "a", 0)
    await asyncio.sleep(2 * LATE_SECONDS)
    behind = publish(lanes, "a", 1)
    broker.lost.clear()
    broker.channels_with("a")[0].fail(PreconditionFailed("too large", code=406))
    await behind
    assert broker.arrived == [("a", 1)]


async def test_after_a_message_closed_a_lane_those_to_the_same_destination_leave_one_by_one(
    broker: Broker, lanes: Lanes
) -> None:
    broker.lost.add("a")
    for number in (0, 1):
        publish(lanes, "a", number)
    await asyncio.sleep(2 * CONFIRM_SECONDS)
    (lane,) = broker.channels_with("a")
    assert len(lane.sent) == 2
    lane.fail(PreconditionFailed("too large", code=406))
    await asyncio.sleep(CONFIRM_SECONDS)
    again = [publish(lanes, "a", number) for number in (0, 1)]
    await asyncio.sleep(2 * CONFIRM_SECONDS)
    assert [len(opened.sent) for opened in broker.channels_with("a") if opened.is_open] == [1]
    broker.heal("a")
    await took(*again)
    assert broker.arrived == [("a", 1)]


async def test_a_lane_that_the_broker_closes_is_reported(broker: Broker) -> None:
    broken_by: list[BrokerError] = []
    lanes = Lanes(await broker.channel(), broker.channel, blocked=lambda: False, broken=broken_by.append)
    broker.lost.add("bad")
    bad = publish(lanes, "bad")
    await asyncio.sleep(2 * CONFIRM_SECONDS)
    broker.channels_with("bad")[0].fail(PreconditionFailed("too large", code=406))
    await took(bad)
    assert [type(error) for error in broken_by] == [PreconditionFailed]


async def test_what_waits_for_a_lane_fails_when_the_connection_is_lost(broker: Broker, lanes: Lanes) -> None:
    broker.refuses = ConnectionLost("gone")
    with pytest.raises(ConnectionLost):
        await publish(lanes, "a")


async def test_a_lane_that_takes_long_to_open_as_in_an_alarm_is_waited_for(broker: Broker, lanes: Lanes) -> None:
    broker.refuses = BrokerTimeout("no channel within 10 s")
    waiting = publish(lanes, "a")
    await asyncio.sleep(5.0)
    assert not waiting.done()
    broker.refuses = None
    await waiting


async def test_what_send_raises_goes_to_its_caller_and_harms_no_message_behind_it(broker: Broker, lanes: Lanes) -> None:
    def refuse(_: Any) -> Any:
        raise ValueError("cannot be sent")

    late = lanes.publish("a", refuse)  # no lane is open yet
    behind = publish(lanes, "a", 1)
    with pytest.raises(ValueError, match="cannot be sent"):
        await late
    await behind
    with pytest.raises(ValueError, match="cannot be sent"):
        lanes.publish("b", refuse)
    assert await took(publish(lanes, "b")) < LATE_SECONDS


async def test_those_that_answered_long_ago_have_to_do_so_again(
    broker: Broker, lanes: Lanes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "REMEMBERED", 20)
    for number in range(100):
        await publish(lanes, f"key-{number}")
        await publish(lanes, "often")
    assert lanes.shared("often") is not None
    assert lanes.shared("key-0") is None
    assert len(lanes._proven) + len(lanes._proven_before) <= 20


async def test_nothing_is_kept_of_what_has_its_end(broker: Broker, lanes: Lanes) -> None:
    broker.lost = {f"lost-{number}" for number in range(100)}
    waiting = [publish(lanes, destination) for destination in sorted(broker.lost)]
    await asyncio.sleep(10 * LATE_SECONDS)
    for lost_channel in sorted(broker.lost):
        broker.heal(lost_channel)
    await took(*waiting)
    await asyncio.sleep(10 * LATE_SECONDS)
    assert (lanes._at_work, lanes._late, len(lanes._proving), len(lanes._waiting)) == (0, 0, 0, 0)


async def test_an_answer_that_never_comes_is_given_up_and_what_waits_behind_it_goes_on(
    broker: Broker, lanes: Lanes
) -> None:
    broken_by: list[BrokerError] = []
    lanes._broken = broken_by.append
    broker.lost.add("a")
    never = publish(lanes, "a", 0)
    await asyncio.sleep(2 * LATE_SECONDS)
    behind = publish(lanes, "a", 1)
    broker.lost.clear()  # and the lane gets no news of it
    with pytest.raises(BrokerTimeout):
        await never
    assert asyncio.get_running_loop().time() == pytest.approx(GIVE_UP_SECONDS, abs=0.1)
    await behind
    assert broker.arrived == [("a", 1)]
    assert broken_by == []


@pytest.mark.looptime(False)
async def test_an_answer_that_came_while_the_loop_stood_still_is_taken(
    broker: Broker, lanes: Lanes, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(module, "LATE_SECONDS", 0.01)
    monkeypatch.setattr(module, "GIVE_UP_SECONDS", 0.2)
    broker.lost.add("a")
    waiting = publish(lanes, "a", 0)
    await until(lambda: lanes._late == 1)

    def stand_still(turns: int) -> None:
        if turns == 3:
            time.sleep(0.5)
        if turns:
            loop.call_soon(stand_still, turns - 1)
        else:
            for _, _, future in (waiter for channel in broker.channels for waiter in channel._waiting):
                future.set_result(None)

    loop.call_soon(stand_still, 3)
    await waiting
    assert [len(opened.sent) for opened in broker.channels_with("a")] == [1]
    broker.lost.clear()
    for opened in broker.channels:
        opened._waiting.clear()


async def test_in_an_alarm_nothing_is_given_up(broker: Broker, lanes: Lanes) -> None:
    broker.lost.add("a")
    broker.blocked = True
    waiting = publish(lanes, "a", 0)
    await asyncio.sleep(10 * GIVE_UP_SECONDS)
    assert not waiting.done()
    broker.blocked = False
    broker.lost.clear()
    for opened in broker.channels:
        opened._stalled = False
        opened.go_on()
    await waiting


async def test_a_slow_broker_that_answers_one_after_the_other_is_not_given_up(broker: Broker, lanes: Lanes) -> None:
    broker.confirm = 0.8 * GIVE_UP_SECONDS
    await asyncio.gather(*(publish(lanes, "a", number) for number in range(5)))
    assert broker.arrived == [("a", number) for number in range(5)]


async def test_a_shared_channel_that_the_broker_closed_is_opened_again_once(broker: Broker, lanes: Lanes) -> None:
    await publish(lanes, "a")
    before = len(broker.channels)
    await lanes.reopen()
    assert len(broker.channels) == before
    closed: Any = lanes.main
    closed.fail(PreconditionFailed("message size too large"))
    await asyncio.gather(lanes.reopen(), lanes.reopen())
    assert len(broker.channels) == before + 1
    assert lanes.main.is_open
    await publish(lanes, "a", 1)
    assert broker.arrived[-1] == ("a", 1)
