"""What befalls the model broker and its connections is what befalls real ones."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from osrdyne.errors import ManagementError
from osrdyne_amqp import Connection
from osrdyne_amqp.errors import AccessRefused, BrokerError, BrokerUnreachable, ConnectionLost, Locked
from simulation.model import ModelBroker, history
from simulation.model.programs.bench import Inbox, counts, until
from tests.simulation.test_model import channel_on, kinds, run


async def opened(broker: ModelBroker, name: str) -> Connection:
    return await broker.open("amqp://admin:x@model/", name=name)


async def lock(connection: Connection) -> None:
    await (await connection.channel()).declare_queue("lock", durable=False, exclusive=True)


async def locked_for(broker: ModelBroker, other: Connection) -> float:
    """Seconds until another connection gets the lock."""
    began = broker.now
    while True:
        try:
            await lock(other)
        except Locked:
            await asyncio.sleep(0.1)
        else:
            return broker.now - began


def test_a_cut_connection_ends_at_once_and_gives_back_what_it_held() -> None:
    async def program(broker: ModelBroker) -> Any:
        channel = await channel_on(broker)
        await channel.publish("", "q", b"m")
        victim, other = await opened(broker, "victim"), await opened(broker, "other")
        await lock(victim)
        await (await Inbox.of(victim, "q")).get()
        calling = asyncio.ensure_future((await victim.channel()).declare_queue("q", passive=True))
        await asyncio.sleep(0)
        broker.cut("victim")
        began = broker.now
        reason = await victim.wait_closed()
        at_once = broker.now - began
        with pytest.raises(ConnectionLost):
            await calling
        return reason, at_once, await locked_for(broker, other), counts(await (await Inbox.of(other, "q")).take())

    reason, at_once, lock_free_after, again = run(program)

    assert isinstance(reason, ConnectionLost)
    assert at_once == 0
    assert lock_free_after < 0.5
    assert again == (b"m", True, 1, 1)


def test_what_was_under_way_when_a_connection_is_cut_may_or_may_not_arrive() -> None:
    async def program(broker: ModelBroker) -> int:
        channel = await channel_on(broker, "victim")
        publish = channel.publish("", "q", b"m")
        broker.cut("victim")
        with pytest.raises(ConnectionLost):
            await publish
        await asyncio.sleep(1)
        return len(broker.messages("q"))

    assert {run(program, seed) for seed in range(20)} == {0, 1}


def test_a_half_open_connection_is_noticed_by_missing_heartbeats_and_locks_until_then() -> None:
    async def program(broker: ModelBroker) -> Any:
        victim, other = await opened(broker, "victim"), await opened(broker, "other")
        await lock(victim)
        broker.half_open("victim")
        began = broker.now
        free = asyncio.ensure_future(locked_for(broker, other))
        reason = await victim.wait_closed()
        return reason, broker.now - began, await free

    for seed in range(10):
        reason, noticed, lock_free_after = run(program, seed)

        assert "no sign of life" in str(reason)
        assert 5.0 < noticed <= 10.0
        assert 10.0 <= lock_free_after < 15.5


def test_a_killed_program_hears_nothing_and_can_do_nothing() -> None:
    async def program(broker: ModelBroker) -> Any:
        channel = await channel_on(broker)
        victim = await opened(broker, "victim")
        inbox = await Inbox.of(victim, "q")
        pending = asyncio.ensure_future((await victim.channel()).declare_queue("q", passive=True))
        await asyncio.sleep(0)
        broker.kill("victim")
        await channel.publish("", "q", b"m")
        await asyncio.sleep(9)
        heard = [inbox.quiet, inbox.cancelled.is_set(), pending.done()]
        pending.cancel()
        with pytest.raises(BrokerError):
            inbox.channel.ack(1)
        with pytest.raises(BrokerError):
            await victim.channel()
        began = broker.now
        await victim.close()
        return heard, broker.now - began, broker.connection_names(), len(broker.messages("q"))

    heard, closing, connections, kept = run(program)

    assert heard == [True, False, False]
    assert closing == 0
    assert connections == ["client"]
    assert kept == 1


def test_a_program_can_be_killed_before_any_of_its_operations() -> None:
    async def program(broker: ModelBroker) -> Any:
        channel = await channel_on(broker)
        seen: list[str] = []

        def before(connection: str, what: str) -> None:
            seen.append(what)
            if len(seen) == 3:
                broker.kill(connection)

        broker.on_operation = before
        for body in (b"1", b"2", b"3"):
            pending = channel.publish("", "q", body)
        await asyncio.sleep(9)
        return seen, pending.done(), [message.body for message in broker.messages("q")]

    for seed in range(10):
        seen, heard, arrived = run(program, seed)

        assert seen == ["publish"] * 3
        assert not heard
        assert b"3" not in arrived


def test_a_stopped_broker_is_unreachable_and_keeps_what_is_durable() -> None:
    async def program(broker: ModelBroker) -> Any:
        channel = await channel_on(broker)
        await channel.publish("", "q", b"m")
        consumer = await opened(broker, "consumer")
        await lock(consumer)
        await (await Inbox.of(consumer, "q")).get()
        broker.stop()
        reason = await consumer.wait_closed()
        with pytest.raises(BrokerUnreachable):
            await opened(broker, "again")
        with pytest.raises(ManagementError, match="Connection refused"):
            await broker.management().alarm()
        broker.start()
        after = await opened(broker, "after")
        return reason, broker.queue_names(), counts(await (await Inbox.of(after, "q")).take())

    reason, names, message = run(program)

    assert isinstance(reason, ConnectionLost)
    assert reason.code == 320
    assert names == ["q"]
    assert message == (b"m", True, 1, 1)


def test_an_alarm_stops_what_a_publisher_sends_and_loses_none_of_it() -> None:
    async def program(broker: ModelBroker) -> Any:
        channel = await channel_on(broker)
        broker.alarm(True)
        publishes = [channel.publish("", "q", b"%d" % number) for number in range(3)]
        await asyncio.sleep(100)
        during = len(broker.messages("q"))
        broker.alarm(False)
        await asyncio.gather(*publishes)
        inbox = await Inbox.of(await opened(broker, "consumer"), "q")
        return during, await inbox.bodies(3)

    assert run(program) == (0, [b"0", b"1", b"2"])


def test_an_alarm_keeps_the_broker_from_noticing_that_a_publisher_is_gone() -> None:
    async def program(broker: ModelBroker) -> float:
        channel = await channel_on(broker, "victim")
        await channel.declare_queue("lock", durable=False, exclusive=True)
        other = await opened(broker, "other")
        broker.alarm(True)
        publish = channel.publish("", "q", b"m")
        await asyncio.sleep(1)
        broker.cut("victim")
        free_after = await locked_for(broker, other)
        assert isinstance(publish.exception(), ConnectionLost)
        return free_after

    for seed in range(10):
        assert 2.4 < run(program, seed) < 5.3


def test_the_management_api_can_be_away_or_hang() -> None:
    async def program(broker: ModelBroker) -> float:
        api = broker.management()
        api.away = True
        with pytest.raises(ManagementError, match="no management API"):
            await api.topology()
        api.away, api.hangs = False, True
        began = broker.now
        with pytest.raises(ManagementError, match="timed out"):
            await api.topology()
        return broker.now - began

    assert run(program) > 10


def test_an_unknown_user_is_refused() -> None:
    async def program(broker: ModelBroker) -> None:
        with pytest.raises(AccessRefused):
            await broker.open("amqp://stranger:x@model/", name="stranger")

    run(program)


def test_a_user_without_permissions_is_refused_until_they_are_back() -> None:
    async def program(broker: ModelBroker) -> None:
        connection = await opened(broker, "client")
        permission = broker.revoke("admin")
        channel = await connection.channel(confirm=True)
        with pytest.raises(AccessRefused):
            await channel.publish("", "q", b"")
        assert connection.is_open
        broker.grant(permission)
        await (await connection.channel(confirm=True)).publish("", "q", b"")

    run(program)


def test_an_acknowledgement_is_on_record_with_when_it_was_sent() -> None:
    async def program(broker: ModelBroker) -> Any:
        channel = await channel_on(broker)
        await channel.publish("", "q", b"m")
        inbox = await Inbox.of(channel_connection := await opened(broker, "consumer"), "q")
        assert channel_connection.is_open
        message = await inbox.get()
        sent = broker.now
        inbox.channel.ack(message.delivery_tag)
        await until(lambda: kinds(broker, history.ACKED))
        (acked,) = [entry for entry in broker.history if entry.kind == history.ACKED]
        return acked.detail == sent, acked.at > sent

    assert run(program) == (True, True)
