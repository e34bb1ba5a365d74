"""Programs about deliveries: prefetch, acknowledgements, cancelling."""

from __future__ import annotations

import asyncio
from typing import Any

from simulation.model.programs.bench import CLASSIC, QUORUM, Bench, Inbox, ended, outcome, ready, until


async def the_prefetch_bounds_what_a_consumer_holds(bench: Bench) -> Any:
    connection = await bench.open()
    channel = await connection.channel(confirm=True)
    await channel.declare_queue("q", arguments=QUORUM)
    for number in range(5):
        await channel.publish("", "q", b"%d" % number)
    inbox = await Inbox.of(connection, "q", prefetch=2)
    first, second = await inbox.get(), await inbox.get()
    await ready(channel, "q", 3)
    inbox.channel.ack(second.delivery_tag)
    third = await inbox.get()
    await ready(channel, "q", 2)
    inbox.channel.ack(0, multiple=True)
    rest = await inbox.bodies(2)
    return [first.body, second.body, third.body, *rest], inbox.quiet


async def messages_without_acknowledgement_are_gone_when_delivered(bench: Bench) -> Any:
    connection = await bench.open()
    channel = await connection.channel(confirm=True)
    await channel.declare_queue("q", arguments=QUORUM)
    for number in range(3):
        await channel.publish("", "q", b"%d" % number)
    inbox = await Inbox.of(connection, "q", prefetch=1, no_ack=True)
    bodies = [(await inbox.get()).body for _ in range(3)]
    await inbox.channel.close()

    async def alone() -> bool:
        return not (await channel.declare_queue("q", passive=True)).consumers

    await until(alone)
    return bodies, (await channel.declare_queue("q", passive=True))


async def an_unknown_delivery_tag_closes_the_channel(bench: Bench) -> Any:
    connection = await bench.open()
    channel = await connection.channel(confirm=True)
    await channel.declare_queue("q", arguments=QUORUM)
    await channel.publish("", "q", b"m")
    inbox = await Inbox.of(connection, "q")
    message = await inbox.take()
    inbox.channel.ack(message.delivery_tag)
    return await ended(inbox.channel), connection.is_open


async def what_a_cancelled_consumer_holds_stays_its_own(bench: Bench) -> Any:
    connection = await bench.open()
    channel = await connection.channel(confirm=True)
    await channel.declare_queue("q", arguments=QUORUM)
    await channel.publish("", "q", b"m")
    inbox = await Inbox.of(connection, "q")
    message = await inbox.get()
    await inbox.channel.cancel(inbox.tag)
    await channel.publish("", "q", b"n")
    other = await Inbox.of(connection, "q")
    results = [(await other.take()).body, inbox.quiet]
    inbox.channel.reject(message.delivery_tag, requeue=True)
    results.append((await other.take()).body)
    return results


async def a_consume_that_is_given_up_hinders_no_closing(bench: Bench) -> Any:
    loop = asyncio.get_running_loop()
    complaints: list[str] = []
    before = loop.get_exception_handler()
    loop.set_exception_handler(lambda _, context: complaints.append(str(context["message"])))
    try:
        connection = await bench.open()
        channel = await connection.channel()
        await channel.declare_queue("q", arguments=QUORUM)
        given_up = asyncio.ensure_future(Inbox.of(connection, "q", channel=channel))
        await asyncio.sleep(0)
        given_up.cancel()
        await connection.close()
    finally:
        loop.set_exception_handler(before)
    return complaints


async def two_consumers_share_a_queue(bench: Bench) -> Any:
    connection = await bench.open()
    channel = await connection.channel(confirm=True)
    await channel.declare_queue("q", arguments=QUORUM)
    one, two = [await Inbox.of(connection, "q", prefetch=1) for _ in range(2)]
    for number in range(4):
        await channel.publish("", "q", b"%d" % number)
    held = [await one.get(), await two.get()]
    await ready(channel, "q", 2)
    for inbox, message in zip((one, two), held, strict=True):
        inbox.channel.ack(message.delivery_tag)
    held += [await one.get(), await two.get()]
    return sorted(message.body for message in held), [message.redelivered for message in held]


async def a_queue_that_is_full_refuses_or_drops_the_oldest(bench: Bench) -> Any:
    connection = await bench.open()
    channel = await connection.channel(confirm=True)
    results: list[Any] = []
    for number, kind in enumerate((QUORUM, CLASSIC)):
        for overflow in ("reject-publish", "drop-head"):
            name = f"{number}{overflow}"
            await bench.policy(name, f"^{name}$", "queues", max_length=2, overflow=overflow)
            await channel.declare_queue(name, arguments=kind)
            # A quorum queue refuses only after it was found full: it takes a few more than its limit.
            sent = [await outcome(channel.publish("", name, b"%d" % number)) for number in range(5)]
            results.append((name, sent if kind is CLASSIC or overflow == "drop-head" else sent[-1]))
            if overflow == "drop-head":
                await ready(channel, name, 2)
                results.append(await (await Inbox.of(connection, name)).bodies(2))
    return results


async def dropping_the_oldest_spares_what_is_held(bench: Bench) -> Any:
    connection = await bench.open()
    channel = await connection.channel(confirm=True)
    await bench.policy("q", "^q$", "quorum_queues", max_length=2, overflow="drop-head")
    await channel.declare_queue("q", arguments=QUORUM)
    await channel.publish("", "q", b"held")
    inbox = await Inbox.of(connection, "q", prefetch=1)
    held = await inbox.get()
    for number in range(4):
        await channel.publish("", "q", b"%d" % number)
    await ready(channel, "q", 2)
    inbox.channel.reject(held.delivery_tag, requeue=True)
    return await inbox.bodies(2), inbox.quiet


async def a_consumer_of_a_deleted_queue_is_cancelled_whoever_deletes_it(bench: Bench) -> Any:
    connection = await bench.open()
    channel = await connection.channel()
    results = []
    for kind in (QUORUM, CLASSIC):
        await channel.declare_queue("q", arguments=kind)
        inbox = await Inbox.of(connection, "q")
        await bench.delete_queue("q")
        await until(inbox.cancelled.is_set)
        results.append(inbox.channel.is_open)
    return results, await outcome(Inbox.of(connection, "q"))


async def publishes_are_all_confirmed(bench: Bench) -> Any:
    connection = await bench.open()
    channel = await connection.channel(confirm=True)
    await channel.declare_queue("q", arguments=QUORUM)
    done = await asyncio.gather(*(channel.publish("", "q", b"%d" % number) for number in range(300)))
    bodies = await (await Inbox.of(connection, "q", prefetch=100)).bodies(300)
    return len(done), bodies == [b"%d" % number for number in range(300)]
