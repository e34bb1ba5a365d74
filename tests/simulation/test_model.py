"""The model broker by itself: what varies comes from the seed, statistics are late, losses are on record."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import pytest

from osrdyne.errors import ManagementError
from osrdyne_amqp import Channel, Properties
from osrdyne_amqp.errors import Nacked
from osrdyne_pool.topology import Permission
from simulation import virtual_time
from simulation.model import ConfirmTiming, ModelBroker, history
from simulation.model.broker import Version
from simulation.model.programs import ALL
from simulation.model.programs.bench import QUORUM, Inbox, until
from simulation.model.programs.model_bench import ModelBench
from simulation.model.timing import Range

Program = Callable[[ModelBroker], Coroutine[Any, Any, Any]]


def run(program: Program, seed: int = 1, version: Version = "4.3") -> Any:
    async def main() -> Any:
        broker = ModelBroker(random.Random(seed), version=version)
        broker.grant(Permission("admin", ".*", ".*", ".*"))
        return await program(broker)

    return virtual_time.run(seed, main)


async def channel_on(broker: ModelBroker, name: str = "client") -> Channel:
    """A confirm channel, with a quorum queue `q` there."""
    connection = await broker.open("amqp://admin:x@model/", name=name)
    channel = await connection.channel(confirm=True)
    await channel.declare_queue("q", arguments=QUORUM)
    return channel


def kinds(broker: ModelBroker, *wanted: str) -> list[str]:
    return [entry.kind for entry in broker.history if entry.kind in wanted]


def history_of(seed: int) -> list[str]:
    async def main() -> list[str]:
        bench = ModelBench("4.3", seed)
        for name in ("a_rejected_message_comes_back_until_its_limit", "publishes_are_all_confirmed"):
            await ALL[name](bench)
            for queue in bench.broker.queue_names():
                bench.broker.delete_queue(queue)
        return list(bench.broker.history.lines())

    return virtual_time.run(seed, main)


def test_a_seed_has_one_history() -> None:
    assert history_of(5) == history_of(5)
    assert history_of(5) != history_of(6)


def test_a_history_shows_no_addresses_of_objects() -> None:
    assert " 0x" not in "".join(history_of(5))


def test_what_one_channel_sends_arrives_in_order() -> None:
    async def program(broker: ModelBroker) -> list[bytes]:
        channel = await channel_on(broker)
        await asyncio.gather(*(channel.publish("", "q", b"%d" % number) for number in range(50)))
        inbox = await Inbox.of(await broker.open("amqp://admin:x@model/", name="consumer"), "q", prefetch=50)
        return await inbox.bodies(50)

    assert run(program) == [b"%d" % number for number in range(50)]


def _note(order: list[int], number: int, _: object) -> None:
    order.append(number)


def test_confirms_come_out_of_order_and_for_several_at_once() -> None:
    async def program(broker: ModelBroker) -> tuple[list[int], bool]:
        broker.confirming = ConfirmTiming(delay=Range(0.0, 0.05), multiple=0.5)
        channel = await channel_on(broker)
        order: list[int] = []
        settled: list[bool] = []
        settle = channel._confirms.settle  # type: ignore[union-attr]

        def seen(tag: int, multiple: bool, accepted: bool) -> None:
            settled.append(multiple)
            settle(tag, multiple, accepted)

        channel._confirms.settle = seen  # type: ignore[method-assign,union-attr]
        publishes = [channel.publish("", "q", b"") for _ in range(50)]
        for number, publish in enumerate(publishes):
            publish.add_done_callback(partial(_note, order, number))
        await asyncio.gather(*publishes)
        await asyncio.sleep(0)
        return order, any(settled) and not all(settled)

    order, mixed = run(program)

    assert sorted(order) == list(range(50))
    assert order != sorted(order)
    assert mixed


def test_a_confirm_may_never_come_though_the_message_is_there() -> None:
    async def program(broker: ModelBroker) -> int:
        channel = await channel_on(broker)
        broker.confirming.never = 1.0
        publish = channel.publish("", "q", b"")
        await asyncio.wait((publish,), timeout=60)
        assert not publish.done()
        publish.cancel()
        return len(broker.messages("q"))

    assert run(program) == 1


def test_a_publish_may_be_refused_for_no_reason() -> None:
    async def program(broker: ModelBroker) -> int:
        channel = await channel_on(broker)
        broker.confirming.refuse = 1.0
        with pytest.raises(Nacked):
            await channel.publish("", "q", b"")
        return len(broker.messages("q"))

    assert run(program) == 0


def test_unacknowledged_messages_are_shown_seconds_late() -> None:
    delays = []

    async def program(broker: ModelBroker) -> None:
        channel = await channel_on(broker)
        await asyncio.sleep(10)
        await channel.publish("", "q", b"")
        inbox = await Inbox.of(await broker.open("amqp://admin:x@model/", name="consumer"), "q")
        await inbox.get()
        held = broker.now
        api = broker.management()

        async def shown() -> bool:
            totals = await api.totals("q")
            return totals is not None and totals.unacknowledged == 1

        await until(shown)
        delays.append(broker.now - held)

    for seed in range(20):
        run(program, seed)

    assert min(delays) < 2.0
    assert max(delays) > 5.0
    assert max(delays) < 7.2


def test_a_new_queue_has_no_statistics_at_first() -> None:
    async def program(broker: ModelBroker) -> None:
        await channel_on(broker)
        api = broker.management()
        with pytest.raises(ManagementError, match="no statistics of queue q yet"):
            await api.totals("q")

        async def shown() -> bool:
            try:
                return await api.totals("q") is not None
            except ManagementError:
                return False

        await until(shown)

    run(program)


def test_what_a_deleted_queue_held_is_on_record() -> None:
    async def program(broker: ModelBroker) -> Any:
        channel = await channel_on(broker)
        for correlation_id in ("1", "2", "3"):
            await channel.publish("", "q", b"", Properties(correlation_id=correlation_id))
        inbox = await Inbox.of(await broker.open("amqp://admin:x@model/", name="consumer"), "q", prefetch=1)
        await inbox.get()
        await channel.delete_queue("q")
        (deleted,) = [entry for entry in broker.history if entry.kind == history.DELETED]
        lost = [
            (entry.message.correlation_id, entry.actor, entry.detail)
            for entry in broker.history
            if entry.kind == history.LOST and entry.message is not None
        ]
        return deleted.detail[:4], lost

    held, lost = run(program)

    assert held == (2, 1, 0, 1)
    assert lost == [("2", "client", "ready"), ("3", "client", "ready"), ("1", "client", "unacknowledged")]


def test_a_publish_on_its_way_to_a_quorum_queue_that_goes_is_confirmed_and_lost() -> None:
    async def program(broker: ModelBroker) -> list[str]:
        broker.timing.enqueue = Range(1.0, 1.0)
        channel = await channel_on(broker)
        publish = channel.publish("", "q", b"")
        await until(lambda: kinds(broker, history.PUBLISHED))
        broker.delete_queue("q")
        await publish
        return kinds(broker, history.ROUTED, history.LOST, history.CONFIRMED)

    assert run(program) == [history.LOST, history.CONFIRMED]


#: A queue whose dead letters go to the queue `later`, at least once.
DYING = {
    **QUORUM,
    "x-dead-letter-exchange": "",
    "x-dead-letter-routing-key": "later",
    "x-dead-letter-strategy": "at-least-once",
    "x-overflow": "reject-publish",
}


def test_a_dead_letter_that_no_queue_takes_is_tried_again_minutes_later() -> None:
    async def program(broker: ModelBroker) -> float:
        channel = await channel_on(broker)
        await channel.declare_queue("dying", arguments=DYING)
        await channel.publish("", "dying", b"", Properties(expiration="0"))
        await asyncio.sleep(1)
        await channel.declare_queue("later", arguments=QUORUM)
        began = broker.now
        while not broker.messages("later"):
            assert len(broker.messages("dying")) == 1
            await asyncio.sleep(1)
        return broker.now - began

    assert 170 < run(program) < 190


def test_a_dead_letter_may_arrive_twice() -> None:
    async def program(broker: ModelBroker) -> Any:
        channel = await channel_on(broker)
        for name, arguments in (("dying", DYING), ("later", QUORUM)):
            await channel.declare_queue(name, arguments=arguments)
        broker.confirming.letters_again = 1.0
        await channel.publish("", "dying", b"", Properties(expiration="0"))
        await asyncio.sleep(1)
        broker.confirming.letters_again = 0.0
        await asyncio.sleep(200)
        return len(broker.messages("later")), len(broker.messages("dying"))

    assert run(program) == (2, 0)


def test_the_ways_of_a_message_are_on_record() -> None:
    async def program(broker: ModelBroker) -> list[tuple[str, Any]]:
        channel = await channel_on(broker)
        await channel.declare_queue("dying", arguments=DYING)
        await channel.declare_queue("later", arguments=QUORUM)
        await channel.publish("", "dying", b"", Properties(expiration="1000"))
        inbox = await Inbox.of(await broker.open("amqp://admin:x@model/", name="consumer"), "dying")
        inbox.channel.reject((await inbox.get()).delivery_tag, requeue=True)
        inbox.channel.give_back((await inbox.get()).delivery_tag)
        await inbox.get()
        await asyncio.sleep(2)
        await inbox.channel.close()
        later = await Inbox.of(await broker.open("amqp://admin:x@model/", name="other"), "later")
        later.channel.reject((await later.get()).delivery_tag, requeue=False)
        await asyncio.sleep(1)
        return [(entry.kind, entry.detail) for entry in broker.history if entry.message is not None]

    assert [event for event in run(program) if event[0] != history.CONFIRMED] == [
        (history.PUBLISHED, False),
        (history.ROUTED, None),
        (history.DELIVERED, False),
        (history.REQUEUED, "reject"),
        (history.DELIVERED, True),
        (history.REQUEUED, "nack"),
        (history.DELIVERED, True),
        (history.REQUEUED, "channel closed"),
        (history.EXPIRED, None),
        (history.DEAD_LETTERED, "expired"),
        (history.ROUTED, None),
        (history.DELIVERED, True),
        (history.REJECTED, None),
        (history.DROPPED, "rejected"),
    ]


def test_a_direct_reply_never_reaches_another_call_that_took_the_channels_number() -> None:
    async def program(broker: ModelBroker) -> Any:
        channel = await channel_on(broker)
        caller = await broker.open("amqp://admin:x@model/", name="caller")
        first = await caller.channel(confirm=True)
        await Inbox.of(caller, "amq.rabbitmq.reply-to", no_ack=True, channel=first)
        await first.publish("", "q", b"question", Properties(reply_to="amq.rabbitmq.reply-to"))
        (question,) = broker.messages("q")
        await first.close()
        second = await caller.channel(confirm=True)
        assert second._number == first._number
        inbox = await Inbox.of(caller, "amq.rabbitmq.reply-to", no_ack=True, channel=second)
        await channel.publish("", question.properties["reply_to"], b"answer")
        await asyncio.sleep(1)
        return inbox.quiet

    assert run(program) is True
