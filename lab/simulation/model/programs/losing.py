"""Programs about quorum queues that the broker has lost. No answer is waited for that takes a minute.

Of RabbitMQ 4.3 there is nothing to compare: what makes a 4.0 lose a queue keeps its messages there.
"""

from __future__ import annotations

import asyncio
from typing import Any

from osrdyne_amqp import Connection
from simulation.model.programs.bench import QUORUM, Bench, Inbox, ended, outcome


async def _lost(bench: Bench) -> Connection:
    """Lose the queue `lost`, bound and with a message in it; another, `other`, is well."""
    connection = await bench.open()
    channel = await connection.channel(confirm=True)
    await bench.exchange("x")
    for queue in ("lost", "other"):
        await channel.declare_queue(queue, arguments=QUORUM)
    await channel.bind_queue("lost", "x", "k")
    await channel.publish("", "lost", b"kept until it was lost")
    await bench.lose("lost")
    # What has used the queue before is another matter: a broker that was killed knows no client.
    await connection.close()
    return await bench.open()


async def a_lost_queue_is_listed_and_answers_what_its_record_knows(bench: Bench) -> Any:
    if bench.version != "4.0":
        return None
    connection = await _lost(bench)
    channel = await connection.channel()
    results: list[Any] = [
        await channel.declare_queue("lost", passive=True),
        await channel.declare_queue("lost", arguments=QUORUM),
        await outcome((await connection.channel()).declare_queue("lost", arguments={**QUORUM, "x-max-length": 1})),
    ]
    await channel.bind_queue("lost", "x", "again")
    await channel.unbind_queue("lost", "x", "again")
    never_led = [await bench.never_led(queue) for queue in ("lost", "other", "none")]
    await channel.delete_queue("lost")
    return results, never_led, await bench.never_led("lost")


async def a_publish_to_a_lost_queue_holds_up_its_channel_and_no_other(bench: Bench) -> Any:
    if bench.version != "4.0":
        return None
    connection = await _lost(bench)
    stuck, free, third = [await connection.channel(confirm=True) for _ in range(3)]
    before = stuck.publish("", "other", b"before")
    lost = stuck.publish("x", "k", b"stuck", mandatory=True)
    behind = stuck.publish("", "other", b"behind")
    declared = asyncio.ensure_future(stuck.declare_queue("behind", arguments=QUORUM))
    await free.publish("", "other", b"free")
    inbox = await Inbox.of(connection, "other", channel=free)
    bodies = sorted(await inbox.bodies(2))
    results = [lost.done(), behind.done(), declared.done()]
    looked = await outcome((await connection.channel()).declare_queue("behind", passive=True))
    count = await third.delete_queue("lost")
    nacked = await outcome(lost)
    await before
    return bodies, results, looked, count, nacked, await outcome(behind), await declared


async def deliveries_and_acknowledgements_of_a_channel_that_is_held_up_wait(bench: Bench) -> Any:
    if bench.version != "4.0":
        return None
    connection = await _lost(bench)
    stuck, free = [await connection.channel(confirm=True) for _ in range(2)]
    await free.publish("", "other", b"1")
    inbox = await Inbox.of(connection, "other", channel=stuck)
    first = await inbox.get()
    lost = stuck.publish("", "lost", b"m")
    stuck.ack(first.delivery_tag)
    await asyncio.sleep(0.5)  # the broker says nothing of it
    await free.publish("", "other", b"2")
    await asyncio.sleep(1)
    quiet = inbox.quiet
    await free.delete_queue("lost")
    return quiet, await outcome(lost), (await inbox.take()).body


async def a_lost_queue_that_is_deleted_and_declared_anew_works_at_once(bench: Bench) -> Any:
    if bench.version != "4.0":
        return None
    connection = await _lost(bench)
    channel = await connection.channel(confirm=True)
    began = asyncio.get_running_loop().time()
    count = await channel.delete_queue("lost")
    took = round((asyncio.get_running_loop().time() - began) / 5)
    unrouted = await outcome(channel.publish("x", "k", b"m", mandatory=True))
    gone = await bench.never_led("lost")
    await channel.declare_queue("lost", arguments=QUORUM)
    await channel.bind_queue("lost", "x", "k")
    await channel.publish("x", "k", b"new", mandatory=True)
    inbox = await Inbox.of(connection, "lost")
    return took, count, unrouted, gone, await inbox.bodies(1), inbox.quiet, await bench.never_led("lost")


async def who_waits_to_consume_from_a_lost_queue_is_thrown_out_when_it_is_deleted(bench: Bench) -> Any:
    if bench.version != "4.0":
        return None
    connection = await _lost(bench)
    consumer, watched = await bench.open(), await connection.channel()
    waiting = asyncio.ensure_future(outcome(Inbox.of(consumer, "lost")))
    other = await consumer.channel()
    looked = await other.declare_queue("lost", passive=True)
    await watched.delete_queue("lost")
    return looked, await waiting, await ended(other)
