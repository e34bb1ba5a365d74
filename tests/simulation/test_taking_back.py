"""What waits for workers that cannot be started becomes orphans again, and no look of the daemon buries it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Any

import pytest

from osrdyne.broker.publisher import Publisher
from osrdyne.failures import dead_letter_rules
from osrdyne.intake import taking_back
from osrdyne.intake.taking_back import TakingBack
from osrdyne.state.pool import PoolState
from osrdyne_amqp import Channel, Connection, Message, Properties
from osrdyne_amqp.errors import BrokerError
from osrdyne_pool.settings import PoolSettings
from osrdyne_protocol import events, headers
from simulation import virtual_time
from simulation.model import ConfirmTiming
from simulation.model.broker import Version
from simulation.model.programs.bench import QUORUM, Inbox
from simulation.model.programs.model_bench import ModelBench
from simulation.model.timing import Range

A_CALLER = "reply-core-client-" + "0" * 32
BOTH = pytest.mark.parametrize("version", ["4.0", "4.3"])
KEY = "42"


@dataclass
class Place:
    """A pool on the model of a broker, with the queue of a key whose workers cannot be started."""

    bench: ModelBench
    connection: Connection
    channel: Channel
    state: PoolState
    taking: TakingBack

    @classmethod
    async def make(cls, version: Version) -> Place:
        bench = ModelBench(version)
        connection = await bench.open()
        channel = await connection.channel(confirm=True)
        state = PoolState.of(PoolSettings("core"), asyncio.get_running_loop().time)
        await bench.exchange(state.names.orphan_exchange, "fanout")
        await bench.exchange(state.names.dead_letter_exchange, "fanout")
        for queue in (state.names.orphan_queue, state.names.dead_letter_queue, state.names.request_queue(KEY)):
            await channel.declare_queue(queue, arguments=QUORUM)
        await channel.bind_queue(state.names.orphan_queue, state.names.orphan_exchange, "")
        await channel.bind_queue(state.names.dead_letter_queue, state.names.dead_letter_exchange, "")
        self = cls(bench, connection, channel, state, taking_back_of(state, connection))
        self.fail(3)
        return self

    async def begin_session(self) -> None:
        """Let the daemon's session end, and another begin, in which starts have failed again."""
        self.connection = await self.bench.open()
        self.channel = await self.connection.channel(confirm=True)
        self.taking = taking_back_of(self.state, self.connection)
        self.state.groups.attempts.clear()
        self.fail(3)

    @property
    def queue(self) -> str:
        return self.state.names.request_queue(KEY)

    def fail(self, starts: int) -> None:
        """Let so many more starts in a row have ended too early."""
        attempt, due = self.state.groups.attempt(KEY), self.state.clock() + 1000.0
        self.state.groups.attempts[KEY] = replace(attempt, not_before=due, unstarted=attempt.unstarted + starts)

    async def put(self, *bodies: str, reply_to: str | None = A_CALLER, given: dict[str, object] | None = None) -> None:
        for body in bodies:
            properties = Properties(reply_to=reply_to, headers=given)
            await self.channel.publish("", self.queue, body.encode(), properties)

    async def take(self) -> bool:
        return await self.taking.take(KEY, await self.connection.channel())

    async def lose_a_look(self) -> None:
        """Let the daemon's connection end while it has requests in hand."""
        self.bench.broker.confirming = ConfirmTiming(delay=Range(1.0, 1.0), multiple=0.0)
        took = asyncio.ensure_future(self.take())
        await asyncio.sleep(0.5)
        await self.connection.close()
        with pytest.raises(BrokerError):
            await took
        self.bench.broker.confirming = ConfirmTiming()

    async def start_again(self) -> None:
        """Let the row of failed starts end, and forward its orphans to their queue."""
        self.state.groups.attempts.clear()
        for orphan in await self.all_of(self.state.names.orphan_queue, acknowledged=True):
            await self.channel.publish("", self.queue, orphan.body, orphan.properties)

    def given_back(self) -> int:
        """Return how often the daemon gave a request back."""
        return sum(entry.kind == "requeued" and entry.detail == "nack" for entry in self.bench.broker.history)

    async def crash(self, times: int) -> None:
        """Let so many workers that say nothing serve requests, until one crashes them."""
        for _ in range(times):
            inbox = await Inbox.of(self.connection, self.queue, prefetch=1)
            while (request := await inbox.get()).body != b"poison":
                inbox.channel.ack(request.delivery_tag)
            await inbox.channel.close()

    async def all_of(self, queue: str, *, acknowledged: bool = False) -> list[Message]:
        """Take what is ready in a queue."""
        ready = (await self.channel.declare_queue(queue, passive=True)).ready
        inbox = await Inbox.of(self.connection, queue, prefetch=100)
        return [await (inbox.take() if acknowledged else inbox.get()) for _ in range(ready)]

    async def bodies(self) -> tuple[list[str], list[str]]:
        """Take all; return what are orphans now, and what stayed."""
        orphans, stayed = await self.all_of(self.state.names.orphan_queue), await self.all_of(self.queue)
        return [message.body.decode() for message in orphans], [message.body.decode() for message in stayed]


def taking_back_of(state: PoolState, connection: Connection) -> TakingBack:
    return TakingBack(
        state=state,
        publisher=Publisher(connection, timeout=5.0),
        user="admin",
        orphan_ttl_ms=600_000,
        message_ttl_ms=1_800_000,
        delivery_limit=5,
    )


def delivered_of(message: Message) -> object:
    return (message.properties.headers or {}).get(headers.X_DELIVERED)


def run(version: Version, program: Callable[[Place], Coroutine[Any, Any, Any]]) -> Any:
    async def main() -> Any:
        return await program(await Place.make(version))

    return virtual_time.run(1, main)


@BOTH
def test_all_that_have_a_caller_become_orphans_in_their_order(version: Version) -> None:
    async def program(place: Place) -> None:
        names = [str(number) for number in range(50)]
        await place.put(*names)
        assert not await place.take()
        orphans, stayed = await place.bodies()
        assert (orphans, stayed) == (names, [])

    run(version, program)


@BOTH
def test_what_waited_longer_than_an_orphan_may_does_not_expire_when_it_is_taken_back(version: Version) -> None:
    async def program(place: Place) -> None:
        seen_ms = events.wall_ms() - 700_000
        await place.put("a", given={headers.X_FIRST_SEEN: seen_ms})
        await place.put("b", given={headers.X_FIRST_SEEN: seen_ms, headers.X_DEADLINE: seen_ms + 710_000})
        await place.take()
        first, second = await place.all_of(place.state.names.orphan_queue)
        # Then it has the whole time of an orphan, and ends when it would have ended in its queue
        assert int(str(first.properties.expiration)) > 500_000
        assert first.properties.headers[headers.X_DEADLINE] == seen_ms + 1_800_000
        # And its own deadline stays
        assert int(str(second.properties.expiration)) <= 10_000
        assert second.properties.headers[headers.X_DEADLINE] == seen_ms + 710_000

    run(version, program)


@BOTH
def test_the_expiration_of_what_never_was_an_orphan_begins_again_once(version: Version) -> None:
    async def program(place: Place) -> None:
        await place.channel.publish("", place.queue, b"a", Properties(reply_to=A_CALLER, expiration="5000"))
        orphans, deadlines = await Inbox.of(place.connection, place.state.names.orphan_queue, prefetch=1), []
        for _ in range(2):
            await asyncio.sleep(2.0)
            await place.take()
            orphan = await orphans.take()
            deadlines.append(orphan.properties.headers[headers.X_DEADLINE] - events.wall_ms())
            await place.channel.publish("", place.queue, b"a", orphan.properties)
        assert 4900 <= deadlines[0] <= 5000
        assert 2900 <= deadlines[1] <= 3000

    run(version, program)


@BOTH
def test_requests_without_a_caller_do_not_fill_the_orphan_queue(version: Version) -> None:
    async def program(place: Place) -> None:
        await place.put("caller 0", "caller 1")
        await place.put(*(f"cast {number}" for number in range(20)), reply_to=None)
        await place.put("caller 2")
        await place.take()
        orphans, stayed = await place.bodies()
        assert orphans[:2] == ["caller 0", "caller 1"]
        assert len(orphans) <= 4, "a few go with those that have a caller"
        assert len(stayed) == 23 - len(orphans)
        # None was given back: RabbitMQ 4.0 would count that as a delivery
        assert orphans[2:] + stayed == [*(f"cast {number}" for number in range(20)), "caller 2"]

    run(version, program)


@BOTH
def test_the_first_copy_that_fails_ends_it_and_nothing_is_lost(version: Version) -> None:
    async def program(place: Place) -> None:
        await place.put(*"abcdef")
        await place.bench.policy("full", "^core-orphan$", "queues", max_length=0, overflow="reject-publish")
        took = asyncio.ensure_future(place.take())
        await asyncio.wait((took,), timeout=30.0)
        assert took.done(), "it goes on for ever"
        tries = [entry for entry in place.bench.broker.history if entry.kind == "nacked"]
        assert len(tries) <= 2
        assert not took.result()
        orphans, stayed = await place.bodies()
        assert (orphans, sorted(stayed)) == ([], list("abcdef"))

    run(version, program)


@BOTH
def test_requests_of_which_a_copy_failed_go_back_once_in_the_time_that_they_may_wait(version: Version) -> None:
    async def program(place: Place) -> None:
        await place.put(*"abcdef")
        await place.bench.policy("full", "^core-orphan$", "queues", max_length=0, overflow="reject-publish")
        for _ in range(10):
            await asyncio.wait_for(place.take(), 60.0)
        assert 0 < place.given_back() <= 2
        await place.bench.no_policy("full")
        await asyncio.sleep(1800.0)
        place.fail(1)
        await place.take()
        assert (await place.bodies())[1] == []

    run(version, program)


@BOTH
def test_no_request_is_taken_in_an_alarm(version: Version) -> None:
    async def program(place: Place) -> None:
        await place.put("a")
        place.state.counts.alarm = "disk"
        assert not await place.take()
        assert (await place.channel.declare_queue(place.queue, passive=True)).ready == 1

    run(version, program)


@BOTH
def test_a_look_whose_session_ended_is_not_taken_for_a_worker(version: Version) -> None:
    async def program(place: Place) -> None:
        await place.put("first", "second", "third")
        for _ in range(2):
            await place.lose_a_look()
            await place.begin_session()
        assert not await place.take()
        orphans = await place.all_of(place.state.names.orphan_queue)
        # Copies that were confirmed right before a session ended are there twice
        assert {orphan.body for orphan in orphans} == {b"first", b"second", b"third"}
        assert {delivered_of(orphan) for orphan in orphans} == {None}
        assert (await place.all_of(place.queue), place.given_back()) == ([], 0)

    run(version, program)


@BOTH
def test_what_a_silent_worker_took_shows_that_workers_start_and_carries_its_count(version: Version) -> None:
    async def program(place: Place) -> None:
        await place.put("poison", "behind", "last")
        await place.crash(3)
        assert await place.take()
        orphans = {
            message.body: delivered_of(message) for message in await place.all_of(place.state.names.orphan_queue)
        }
        assert orphans[b"poison"] == 3
        # The rest stays for the next start, and nothing was given back
        assert (await place.channel.declare_queue(place.queue, passive=True)).ready == 3 - len(orphans)
        assert place.given_back() == 0

    run(version, program)


@BOTH
@pytest.mark.parametrize("reply_to", [A_CALLER, None])
def test_what_kills_silent_workers_becomes_a_dead_letter_by_the_count_of_all_its_queues(
    version: Version, reply_to: str | None
) -> None:
    async def program(place: Place) -> None:
        await place.put("poison", reply_to=reply_to)
        await place.crash(3)
        assert await place.take()
        await place.start_again()
        place.fail(3)
        await place.crash(3)
        assert await place.take()
        assert await place.bodies() == ([], [])
        (letter,) = await place.all_of(place.state.names.dead_letter_queue)
        verdict = dead_letter_rules.decide(letter, place.state.names)
        assert (verdict.queue, verdict.keep_as) == (place.queue, "delivery_limit")
        assert verdict.status == ("delivery_limit" if reply_to else None)
        assert dead_letter_rules.deliveries(letter) == 6

    run(version, program)


@BOTH
def test_a_count_that_a_client_wrote_shows_no_worker(version: Version) -> None:
    async def program(place: Place) -> None:
        await place.put("a", given={headers.X_DELIVERY_COUNT: 7, headers.X_DELIVERED: 7})
        assert not await place.take()
        (orphan,) = await place.all_of(place.state.names.orphan_queue)
        assert delivered_of(orphan) is None

    run(version, program)


@BOTH
def test_the_highest_count_that_a_client_wrote_stops_no_dead_letter(version: Version) -> None:
    async def program(place: Place) -> None:
        await place.put("poison", given={headers.X_DELIVERED: 2**63 - 1})
        await place.crash(3)
        assert await place.take()
        assert await place.bodies() == ([], [])
        (letter,) = await place.all_of(place.state.names.dead_letter_queue)
        assert dead_letter_rules.decide(letter, place.state.names).keep_as == "delivery_limit"
        assert (dead_letter_rules.deliveries(letter) or 0) < 2**63

    run(version, program)


@BOTH
def test_what_workers_took_at_some_starts_only_is_not_what_ends_them(version: Version) -> None:
    async def program(place: Place) -> None:
        await place.put("poison", "behind")
        await place.crash(2)
        assert not await place.take()
        assert sorted((await place.bodies())[0]) == ["behind", "poison"]

    run(version, program)


@BOTH
def test_after_a_look_in_the_same_session_one_delivery_at_one_start_shows_a_worker(version: Version) -> None:
    async def program(place: Place) -> None:
        await place.put("other")
        assert not await place.take()
        # It is tried again, and one request kills the worker of that start
        await place.put("poison")
        place.fail(1)
        await place.crash(1)
        assert await place.take()

    run(version, program)


@BOTH
def test_it_ends_once_requests_are_not_refused_any_more(version: Version) -> None:
    async def program(place: Place) -> None:
        await place.put(*(str(number) for number in range(100)))
        place.bench.broker.confirming = ConfirmTiming(delay=Range(1.0, 1.0), multiple=0.0)
        took = asyncio.ensure_future(place.take())
        await asyncio.sleep(5.5)
        place.state.groups.attempts.clear()
        await took
        orphans, stayed = await place.bodies()
        assert 0 < len(orphans) < 20
        assert len(orphans) + len(stayed) == 100

    run(version, program)


@BOTH
def test_few_are_in_hand_at_once(version: Version) -> None:
    async def program(place: Place) -> None:
        await place.put(*(str(number) for number in range(40)))
        place.bench.broker.confirming = ConfirmTiming(delay=Range(1.0, 1.0), multiple=0.0)
        took = asyncio.ensure_future(place.take())
        await asyncio.sleep(2.5)
        # 40, less two pairs whose copies were confirmed in 2.5 s, and one pair in hand
        assert (await place.channel.declare_queue(place.queue, passive=True)).ready >= 40 - 4 - 2
        took.cancel()
        with pytest.raises(asyncio.CancelledError):
            await took

    run(version, program)


@BOTH
def test_a_daemon_without_the_right_warns_once_of_a_key(version: Version, caplog: pytest.LogCaptureFixture) -> None:
    async def program(place: Place) -> None:
        await place.put("a")
        place.state.require(KEY)
        await place.bench.permit("admin", ".*", ".*", "^core-orphan$")
        for _ in range(3):
            assert not await place.take()
        assert (await place.channel.declare_queue(place.queue, passive=True)).ready == 1

    # A run of the simulation in this process raises the level of our loggers.
    with caplog.at_level("WARNING", taking_back.__name__):
        run(version, program)
    assert sum("may not take requests" in record.message for record in caplog.records) == 1
