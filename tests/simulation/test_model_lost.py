"""Quorum queues that the model broker loses when it is killed: what they answer, what they delay, what is on record.

What takes no minute to see is compared with a real broker, in `programs/losing.py`.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from osrdyne.errors import ManagementError
from osrdyne_amqp import Channel, Connection, QueueInfo
from osrdyne_amqp.errors import ConnectionLost, Locked, Nacked
from osrdyne_calls.closing import CLOSE_SECONDS
from osrdyne_pool.broker import quorum
from osrdyne_protocol.names import PoolNames
from simulation.model import ModelBroker, history
from simulation.model.programs.bench import CLASSIC, QUORUM, Inbox, until
from tests.simulation.test_model import channel_on, kinds, run


async def opened(broker: ModelBroker, name: str) -> Connection:
    # None of these tests is about a client that gives up.
    return await broker.open("amqp://admin:x@model/", name=name, timeout=200.0)


async def lost(broker: ModelBroker) -> Connection:
    """Kill the broker and lose `q`, which holds a message; `other` is well. Return a connection made afterwards."""
    channel = await channel_on(broker)
    await channel.declare_queue("other", arguments=QUORUM)
    await channel.publish("", "q", b"kept until it was lost")
    broker.kill_and_start(lose=["q"], down=1.0)
    await asyncio.sleep(2)
    return await opened(broker, "after")


async def confirming(connection: Connection) -> Channel:
    return await connection.channel(confirm=True)


def test_a_client_of_a_broker_that_is_killed_hears_nothing() -> None:
    async def program(broker: ModelBroker) -> Any:
        victim = await opened(broker, "victim")
        broker.kill_and_start()
        return await victim.wait_closed()

    reason = run(program)

    assert isinstance(reason, ConnectionLost)
    assert not reason.code


def test_what_a_killed_broker_does_not_lose_is_kept() -> None:
    async def program(broker: ModelBroker) -> Any:
        channel = await channel_on(broker)
        await channel.publish("", "q", b"m")
        broker.kill_and_start()
        await asyncio.sleep(2)
        return await (await Inbox.of(await opened(broker, "after"), "q")).bodies(1)

    assert run(program) == [b"m"]


@pytest.mark.parametrize("version", ["4.0", "4.3"])
def test_what_the_broker_loses_is_on_record_as_its_own_loss(version: Any) -> None:
    async def program(broker: ModelBroker) -> Any:
        await lost(broker)
        assert not kinds(broker, history.LOST)
        return [
            (entry.place, entry.message and entry.message.body, entry.detail)
            for entry in broker.history
            if entry.kind == history.LOST_BY_BROKER
        ]

    assert run(program, version=version) == [
        ("q", None, history.FOR_GOOD if version == "4.0" else history.EMPTY),
        ("q", b"kept until it was lost", "ready"),
    ]


def test_a_message_that_a_worker_held_and_a_dead_letter_on_its_way_are_lost_too() -> None:
    async def program(broker: ModelBroker) -> Any:
        channel = await channel_on(broker)
        dying = {**QUORUM, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "nowhere"}
        dying |= {"x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish"}
        await channel.declare_queue("dying", arguments=dying)
        for body in (b"rejected", b"held"):
            await channel.publish("", "dying", body)
        inbox = await Inbox.of(await opened(broker, "consumer"), "dying")
        inbox.channel.reject((await inbox.get()).delivery_tag, requeue=False)
        await inbox.get()
        await asyncio.sleep(1)
        broker.kill_and_start(lose=["dying"])
        await asyncio.sleep(300)
        return {
            entry.message.body: entry.detail
            for entry in broker.history
            if entry.kind == history.LOST_BY_BROKER and entry.message is not None
        }

    assert run(program, version="4.0") == {b"held": "ready", b"rejected": "dead lettering"}


def test_of_newer_brokers_a_lost_queue_comes_back_empty_and_works() -> None:
    async def program(broker: ModelBroker) -> Any:
        connection = await lost(broker)
        channel = await confirming(connection)
        empty = await channel.declare_queue("q", passive=True)
        await channel.publish("", "q", b"new")
        members = await broker.management().members("q")
        return empty, await (await Inbox.of(connection, "q")).bodies(1), quorum.never_led(members or ())

    assert run(program, version="4.3") == (QueueInfo("q", 0, 0), [b"new"], False)


def test_each_publish_to_a_lost_queue_holds_up_its_channel_for_65_seconds() -> None:
    async def program(broker: ModelBroker) -> Any:
        connection = await lost(broker)
        channel, other = await confirming(connection), await confirming(connection)
        began = broker.now
        ends: dict[str, float] = {}

        async def publish(name: str, queue: str) -> None:
            try:
                await channel.publish("", queue, b"")
            except Nacked:
                name += ", nacked"
            ends[name] = round(broker.now - began)

        publishes = (("1", "q"), ("2", "other"), ("3", "q"), ("4", "other"))
        under_way = [asyncio.ensure_future(publish(*each)) for each in publishes]
        await asyncio.sleep(1)
        await other.publish("", "other", b"")
        free = broker.now - began
        await asyncio.gather(*under_way)
        return ends, free < 2

    # The second is in its queue at once, but its confirm, too, waits behind the third.
    assert run(program, version="4.0") == ({"1, nacked": 65, "2": 130, "3, nacked": 130, "4": 130}, True)


def test_a_consume_on_a_lost_queue_ends_the_connection_after_65_seconds() -> None:
    async def program(broker: ModelBroker) -> Any:
        connection = await lost(broker)
        began = broker.now
        with pytest.raises(ConnectionLost) as error:
            await Inbox.of(connection, "q")
        return error.value.code, round(broker.now - began)

    assert run(program, version="4.0") == (541, 65)


def test_a_lost_queue_is_deleted_in_five_seconds_in_which_that_channel_does_nothing_else() -> None:
    async def program(broker: ModelBroker) -> Any:
        connection = await lost(broker)
        deleting, waiting = await confirming(connection), await confirming(connection)
        began = broker.now
        stuck = waiting.publish("", "q", b"")
        deleted = asyncio.ensure_future(deleting.delete_queue("q"))
        await asyncio.sleep(0.1)
        await deleting.publish("", "other", b"")
        behind = broker.now - began
        with pytest.raises(Nacked):
            await stuck
        nacked = broker.now - began
        await deleting.declare_queue("q", arguments=QUORUM)
        await deleting.publish("", "q", b"new")
        return await deleted, round(behind), round(nacked), len(broker.messages("q"))

    assert run(program, version="4.0") == (0, 5, 5, 1)


def test_a_connection_with_too_many_publishes_behind_one_channel_is_not_read() -> None:
    async def program(broker: ModelBroker) -> Any:
        connection = await lost(broker)
        channel, other = await confirming(connection), await confirming(connection)
        channel.publish("", "q", b"").add_done_callback(lambda done: done.exception())
        began = broker.now
        behind = [channel.publish("", "other", b"") for _ in range(400)]
        await asyncio.sleep(1)
        await other.publish("", "other", b"")
        with_400 = broker.now - began
        behind.append(channel.publish("", "other", b""))
        await asyncio.sleep(1)
        await other.publish("", "other", b"")
        with_401 = broker.now - began
        await asyncio.gather(*behind)
        return round(with_400), round(with_401), len(broker.messages("other"))

    assert run(program, version="4.0") == (1, 65, 403)


def test_what_a_channel_that_waits_holds_comes_back_late_though_its_connection_is_gone() -> None:
    async def program(broker: ModelBroker) -> Any:
        victim, other = await lost(broker), await opened(broker, "other")
        channel = await confirming(victim)
        await channel.declare_queue("lock", durable=False, exclusive=True)
        await channel.publish("", "other", b"held")
        await (await Inbox.of(victim, "other", channel=channel)).get()
        began = broker.now
        channel.publish("", "q", b"").add_done_callback(lambda done: done.exception())
        await asyncio.sleep(1)
        broker.cut("after")

        async def locked() -> bool:
            try:
                await (await other.channel()).declare_queue("lock", durable=False, exclusive=True)
            except Locked:
                return False
            return True

        await until(locked)
        free = broker.now - began
        await (await Inbox.of(other, "other")).waiting.get()
        return round(free), round(broker.now - began)

    assert run(program, version="4.0") == (1, 65)


def test_a_connection_with_a_channel_that_waits_does_not_close_in_good_order() -> None:
    async def program(broker: ModelBroker) -> Any:
        connection = await lost(broker)
        channel = await confirming(connection)
        channel.publish("", "q", b"").add_done_callback(lambda done: done.exception())
        await asyncio.sleep(1)
        began = broker.now
        await connection.close()
        await asyncio.sleep(1)
        return round(broker.now - began), broker.connection_names()

    assert run(program, version="4.0") == (1 + CLOSE_SECONDS, [])


def test_a_lost_queue_stays_lost_when_the_broker_starts_again() -> None:
    async def program(broker: ModelBroker) -> Any:
        await lost(broker)
        broker.stop()
        broker.start()
        channel = await confirming(await opened(broker, "later"))
        with pytest.raises(Nacked):
            await channel.publish("", "q", b"")
        return len(kinds(broker, history.LOST_BY_BROKER))

    assert run(program, version="4.0") == 2


def test_a_broker_that_ends_leaves_no_channel_waiting() -> None:
    async def program(broker: ModelBroker) -> Any:
        victim = await lost(broker)
        channel = await confirming(victim)
        await channel.publish("", "other", b"held")
        await (await Inbox.of(victim, "other", channel=channel)).get()
        channel.publish("", "q", b"").add_done_callback(lambda done: done.exception())
        await asyncio.sleep(1)
        broker.cut("after")
        await asyncio.sleep(1)
        broker.kill_and_start(down=0.5)
        await asyncio.sleep(1)
        return (await (await Inbox.of(await opened(broker, "later"), "other")).get()).body

    assert run(program, version="4.0") == b"held"


def test_the_management_api_lists_a_lost_queue_without_counts_and_names_its_members() -> None:
    async def program(broker: ModelBroker) -> Any:
        request_queue = PoolNames("core").request_queue("k")
        connection = await lost(broker)
        channel = await connection.channel()
        for name, arguments in ((request_queue, QUORUM), ("classic", CLASSIC)):
            await channel.declare_queue(name, arguments=arguments)
        await asyncio.sleep(30)
        broker.lose(request_queue)
        await asyncio.sleep(30)
        api = broker.management()
        (listed,) = await api.request_queues(PoolNames("core"))
        totals = await api.totals(request_queue)
        members = [await api.members(queue) for queue in (request_queue, "other", "none")]
        with pytest.raises(ManagementError):
            await api.members("classic")
        return (
            listed.totals,
            totals and (totals.ready, totals.unacknowledged),
            [member and quorum.never_led(member) for member in members],
        )

    assert run(program, version="4.0") == (None, (0, 0), [True, False, None])
