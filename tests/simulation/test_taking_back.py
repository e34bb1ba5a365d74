"""What waits for workers that cannot be started becomes orphans again, but for what has to stay in its queue."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Any

import pytest

from osrdyne.broker.publisher import Publisher
from osrdyne.intake import taking_back
from osrdyne.intake.taking_back import TakingBack
from osrdyne.reconcile import group_rules
from osrdyne.state.pool import PoolState
from osrdyne_amqp import Channel, Connection, Message, Properties
from osrdyne_pool.settings import PoolSettings
from osrdyne_protocol import events, headers
from simulation import virtual_time
from simulation.model import Confirming
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
        state = PoolState.of(PoolSettings("core", start_failures=3), asyncio.get_running_loop().time)
        await bench.exchange(state.names.orphan_exchange, "fanout")
        for queue in (state.names.orphan_queue, state.names.request_queue(KEY)):
            await channel.declare_queue(queue, arguments=QUORUM)
        await channel.bind_queue(state.names.orphan_queue, state.names.orphan_exchange, "")
        publisher = Publisher(connection, timeout=5.0)
        taking = TakingBack(
            state=state, publisher=publisher, user="admin", orphan_ttl_ms=600_000, message_ttl_ms=1_800_000
        )
        self = cls(bench, connection, channel, state, taking)
        self.fail(3)
        return self

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

    async def take(self) -> int:
        return await self.taking.take(KEY, await self.connection.channel())

    async def crash(self, times: int) -> None:
        """Let so many workers that say nothing serve requests, until one crashes them."""
        for _ in range(times):
            inbox = await Inbox.of(self.connection, self.queue, prefetch=1)
            while (request := await inbox.get()).body != b"poison":
                inbox.channel.ack(request.delivery_tag)
            await inbox.channel.close()

    async def all_of(self, queue: str) -> list[Message]:
        """Take what is ready in a queue."""
        ready = (await self.channel.declare_queue(queue, passive=True)).ready
        inbox = await Inbox.of(self.connection, queue, prefetch=100)
        return [await inbox.take() for _ in range(ready)]

    async def bodies(self) -> tuple[list[str], list[str]]:
        """Take all; return what are orphans now, and what stayed."""
        orphans, stayed = await self.all_of(self.state.names.orphan_queue), await self.all_of(self.queue)
        return [one.body.decode() for one in orphans], [one.body.decode() for one in stayed]


def run(version: Version, program: Callable[[Place], Coroutine[Any, Any, Any]]) -> Any:
    async def main() -> Any:
        return await program(await Place.make(version))

    return virtual_time.run(1, main)


@BOTH
def test_all_that_have_a_caller_become_orphans_in_their_order(version: Version) -> None:
    async def program(place: Place) -> None:
        names = [str(number) for number in range(50)]
        await place.put(*names)
        assert await place.take() == -1
        orphans, stayed = await place.bodies()
        assert (sorted(orphans, key=int), stayed) == (names, [])

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
        tries = [one for one in place.bench.broker.history if one.kind == "nacked"]
        assert len(tries) <= 2
        assert took.result() == -1
        orphans, stayed = await place.bodies()
        assert (orphans, sorted(stayed)) == ([], list("abcdef"))

    run(version, program)


@BOTH
def test_what_a_silent_worker_took_stays_and_shows_that_workers_start(version: Version) -> None:
    async def program(place: Place) -> None:
        await place.put("poison", "behind", "last")
        await place.crash(3)
        delivered = await place.take()
        assert delivered == 3
        attempts = place.state.groups.attempts
        attempts[KEY] = group_rules.after_delivery(attempts[KEY], delivered)
        assert place.state.refused_until(KEY) is None
        # And each row of starts in which it is taken again shows it again
        place.fail(3)
        await place.crash(3)
        delivered = await place.take()
        assert delivered > 3
        orphans, stayed = await place.bodies()
        assert (orphans, "poison" in stayed) == ([], True)

    run(version, program)


@BOTH
def test_what_a_silent_worker_took_less_often_than_another_before_stays_too(version: Version) -> None:
    async def program(place: Place) -> None:
        await place.put("poison")
        await place.crash(3)
        attempts = place.state.groups.attempts
        attempts[KEY] = group_rules.after_delivery(attempts[KEY], await place.take())
        # It ends at the delivery limit, and another crashes a worker of the next row
        inbox = await Inbox.of(place.connection, place.queue, prefetch=1)
        assert (await inbox.take()).body == b"poison"
        await inbox.channel.close()
        await place.put("poison")
        place.fail(3)
        await place.crash(1)
        assert await place.take() == 1
        assert (await place.bodies())[0] == []

    run(version, program)


@BOTH
def test_what_no_worker_took_in_this_row_is_taken_back_whatever_was_before(version: Version) -> None:
    async def program(place: Place) -> None:
        await place.put("poison", "behind")
        await place.crash(1)
        attempts = place.state.groups.attempts
        attempts[KEY] = group_rules.after_delivery(attempts[KEY], await place.take())
        # No worker starts in this row
        place.fail(3)
        assert await place.take() == -1
        orphans, stayed = await place.bodies()
        assert (sorted(orphans), stayed) == (["behind", "poison"], [])

    run(version, program)


@BOTH
def test_it_ends_once_requests_are_not_refused_any_more(version: Version) -> None:
    async def program(place: Place) -> None:
        await place.put(*(str(number) for number in range(100)))
        place.bench.broker.confirming = Confirming(delay=Range(1.0, 1.0), multiple=0.0)
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
        place.bench.broker.confirming = Confirming(delay=Range(1.0, 1.0), multiple=0.0)
        took = asyncio.ensure_future(place.take())
        await asyncio.sleep(2.5)
        assert (await place.channel.declare_queue(place.queue, passive=True)).ready >= 36 - 2
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
            assert await place.take() == -1
        assert (await place.channel.declare_queue(place.queue, passive=True)).ready == 1

    # A run of the simulation in this process raises the level of our loggers.
    with caplog.at_level("WARNING", taking_back.__name__):
        run(version, program)
    assert sum("may not take requests" in one.message for one in caplog.records) == 1
