"""Programs that need a broker of their own: they restart it, raise an alarm, or wait for its consumer timeout."""

from __future__ import annotations

import asyncio
from typing import Any

from osrdyne_amqp import Properties
from simulation.model.programs.bench import CLASSIC, QUORUM, Bench, Inbox, counts, outcome, seen, until


async def what_is_durable_outlives_a_restart(bench: Bench) -> Any:
    connection = await bench.open()
    channel = await connection.channel(confirm=True)
    await bench.exchange("x")
    await channel.declare_queue("quorum", arguments=QUORUM)
    await channel.declare_queue("classic", arguments=CLASSIC)
    await channel.declare_queue("lock", durable=False, exclusive=True)
    await channel.bind_queue("quorum", "x", "k")
    for queue in ("quorum", "classic"):
        await channel.publish("", queue, b"transient")
        await channel.publish("", queue, b"persistent", Properties(delivery_mode=2))
    inbox = await Inbox.of(connection, "quorum", prefetch=1)
    await inbox.get()
    await bench.restart()
    reason = await connection.wait_closed()
    connection = await bench.open()
    channel = await connection.channel(confirm=True)
    routed = await outcome(channel.publish("x", "k", b"after", mandatory=True))
    lock = await outcome((await connection.channel()).declare_queue("lock", passive=True))
    quorum, classic = [await Inbox.of(connection, queue) for queue in ("quorum", "classic")]
    return (
        type(reason).__name__,
        routed,
        lock,
        [counts(await quorum.take()) for _ in range(3)],
        [counts(await classic.take())],
        classic.quiet,
    )


async def a_lost_queue_is_lost_after_a_restart_too_and_counts_as_empty(bench: Bench) -> Any:
    if bench.version != "4.0":
        return None
    connection = await bench.open()
    channel = await connection.channel(confirm=True)
    for queue in ("lost", "other"):
        await channel.declare_queue(queue, arguments=QUORUM)
        await channel.publish("", queue, b"m")
    await bench.lose("lost")
    await bench.restart()
    channel = await (await bench.open()).channel()

    async def listed() -> bool:
        return "other" in await bench.counted_queues()

    await until(listed)
    await asyncio.sleep(2)  # counts of the lost queue would have come by now, too
    totals = await bench.totals("lost"), await bench.counted_queues()
    lost = [await bench.never_led(queue) for queue in ("lost", "other")]
    looked = await channel.declare_queue("lost", passive=True)
    count = await channel.delete_queue("lost")
    return totals, lost, looked, count, await channel.declare_queue("lost", arguments=QUORUM)


async def an_alarm_blocks_who_publishes_until_it_is_over(bench: Bench) -> Any:
    publisher, consumer = await bench.open(), await bench.open()
    channel = await publisher.channel(confirm=True)
    await channel.declare_queue("q", arguments=QUORUM)
    await channel.publish("", "q", b"before")
    inbox = await Inbox.of(consumer, "q")
    await bench.alarm(True)
    late = channel.publish("", "q", b"during")
    await until(lambda: publisher.blocked)
    taken = (await inbox.take()).body
    looked = await (await consumer.channel()).declare_queue("q", passive=True)
    results = [late.done(), consumer.blocked, inbox.quiet]
    await bench.alarm(False)
    async with asyncio.timeout(15):
        await late
    await until(lambda: not publisher.blocked)
    return taken, looked.ready, results, (await inbox.take()).body


async def a_consumer_that_holds_a_message_for_too_long_is_ended(bench: Bench) -> Any:
    connection = await bench.open()
    channel = await connection.channel(confirm=True)
    await bench.policy("q", "^q$", "quorum_queues", consumer_timeout=2000, delivery_limit=3)
    await channel.declare_queue("q", arguments=QUORUM)
    await channel.publish("", "q", b"m")
    inbox = await Inbox.of(connection, "q", prefetch=1)
    held = await inbox.get()
    closed = asyncio.ensure_future(inbox.channel.wait_closed())
    cancelled = asyncio.ensure_future(inbox.cancelled.wait())
    async with asyncio.timeout(100):
        await asyncio.wait((closed, cancelled), return_when=asyncio.FIRST_COMPLETED)
    results: list[Any] = [closed.done(), cancelled.done()]
    if closed.done():
        results.append(closed.result().code)

    async def back() -> bool:
        return await channel.declare_queue("q", passive=True) == ("q", 1, 0)

    await until(back)
    again = counts(await (await Inbox.of(connection, "q", prefetch=1)).take())
    for task in (closed, cancelled):
        task.cancel()
    return results, seen(held), again


async def only_what_was_held_for_too_long_is_taken_back(bench: Bench) -> Any:
    if bench.version == "4.0":
        return None
    connection = await bench.open()
    channel = await connection.channel(confirm=True)
    await bench.policy("q", "^q$", "quorum_queues", consumer_timeout=8000)
    await channel.declare_queue("q", arguments=QUORUM)
    await channel.publish("", "q", b"old")
    inbox = await Inbox.of(connection, "q", prefetch=2)
    await inbox.get()
    await asyncio.sleep(5)  # what differs is their age
    await channel.publish("", "q", b"young")
    young = await inbox.get()
    await until(inbox.cancelled.is_set)
    other = await Inbox.of(connection, "q")
    taken = (await other.take()).body
    inbox.channel.ack(young.delivery_tag)

    async def empty() -> bool:
        return await bench.totals("q") == (0, 0, 0)

    await until(empty)
    return taken, other.quiet, await channel.declare_queue("q", passive=True)


async def settling_a_message_that_was_taken_back_changes_nothing(bench: Bench) -> Any:
    if bench.version == "4.0":
        return None
    connection = await bench.open()
    channel = await connection.channel(confirm=True)
    await bench.policy("q", "^q$", "quorum_queues", consumer_timeout=2000)
    await channel.declare_queue("q", arguments=QUORUM)
    await channel.publish("", "q", b"m")
    inbox = await Inbox.of(connection, "q", prefetch=1)
    held = await inbox.get()
    await until(inbox.cancelled.is_set)
    other = await Inbox.of(connection, "q", prefetch=1)
    taken = await other.get()
    inbox.channel.ack(held.delivery_tag)
    await inbox.channel.declare_queue("q", passive=True)
    other.channel.reject(taken.delivery_tag, requeue=True)
    return counts(taken), counts(await other.take()), inbox.quiet, inbox.channel.is_open
