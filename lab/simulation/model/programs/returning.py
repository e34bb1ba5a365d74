"""Programs about messages that come back to their queue: counts, limits, order."""

from __future__ import annotations

import asyncio
from typing import Any

from osrdyne_amqp import Channel, Connection, Message, Properties
from simulation.model.programs.bench import CLASSIC, QUORUM, Bench, Inbox, counts, ready, seen, until


async def _limited(bench: Bench, connection: Connection, limit: int = 2) -> Channel:
    """A queue `q` with a delivery limit, whose dead letters go to `dead`; with one message."""
    channel = await connection.channel(confirm=True)
    await bench.exchange("dlx", "fanout")
    await channel.declare_queue("dead", arguments=QUORUM)
    await channel.bind_queue("dead", "dlx", "")
    await bench.policy(
        "q",
        "^q$",
        "quorum_queues",
        delivery_limit=limit,
        dead_letter_exchange="dlx",
        dead_letter_strategy="at-least-once",
        overflow="reject-publish",
    )
    await channel.declare_queue("q", arguments=QUORUM)
    await channel.publish("", "q", b"m")
    return channel


async def a_rejected_message_comes_back_until_its_limit(bench: Bench) -> Any:
    connection = await bench.open()
    await _limited(bench, connection)
    inbox = await Inbox.of(connection, "q")
    results = []
    for _ in range(3):
        message = await inbox.get()
        results.append(counts(message))
        inbox.channel.reject(message.delivery_tag, requeue=True)
    return results, seen(await (await Inbox.of(connection, "dead")).take()), inbox.quiet


async def giving_back_counts_as_the_version_says(bench: Bench) -> Any:
    connection = await bench.open()
    await _limited(bench, connection)
    inbox = await Inbox.of(connection, "q")
    dead = await Inbox.of(connection, "dead")
    results = []
    for _ in range(6):
        coming = {asyncio.ensure_future(queue.get()) for queue in (inbox, dead)}
        done, others = await asyncio.wait(coming, return_when=asyncio.FIRST_COMPLETED)
        for other in others:
            other.cancel()
        message: Message = done.pop().result()
        results.append((message.routing_key, *counts(message)))
        if message.exchange == "dlx":
            break
        inbox.channel.give_back(message.delivery_tag)
    return results


async def closing_a_channel_counts(bench: Bench) -> Any:
    connection = await bench.open()
    await _limited(bench, connection)
    results = []
    for _ in range(3):
        inbox = await Inbox.of(connection, "q")
        results.append(counts(await inbox.get()))
        await inbox.channel.close()
    return results, counts(await (await Inbox.of(connection, "dead")).take())


async def losing_a_connection_counts(bench: Bench) -> Any:
    connection = await bench.open()
    await _limited(bench, connection)
    results = []
    for _ in range(3):
        other = await bench.open()
        results.append(counts(await (await Inbox.of(other, "q")).get()))
        other._wire.cut()
    return results, counts(await (await Inbox.of(connection, "dead")).take())


async def cancelling_and_then_rejecting_counts(bench: Bench) -> Any:
    connection = await bench.open()
    await _limited(bench, connection)
    results = []
    for _ in range(3):
        inbox = await Inbox.of(connection, "q")
        message = await inbox.get()
        results.append(counts(message))
        await inbox.channel.cancel(inbox.tag)
        inbox.channel.reject(message.delivery_tag, requeue=True)
    return results, counts(await (await Inbox.of(connection, "dead")).take())


async def the_default_limit_is_twenty_and_minus_one_is_none(bench: Bench) -> Any:
    connection = await bench.open()
    channel = await connection.channel(confirm=True)
    results = []
    for name, arguments in (("limited", QUORUM), ("free", {**QUORUM, "x-delivery-limit": -1})):
        await channel.declare_queue(name, arguments=arguments)
        await channel.publish("", name, b"m")
        inbox = await Inbox.of(connection, name, prefetch=1)
        for _ in range(21):
            message = await inbox.get()
            inbox.channel.reject(message.delivery_tag, requeue=True)
        await inbox.channel.declare_queue(name, passive=True)  # the broker has seen the last reject, too
        await channel.publish("", name, b"marker")
        results.append((counts(message), counts(await inbox.get())))
    return results


async def a_limit_holds_over_none_in_a_policy_and_in_an_argument(bench: Bench) -> Any:
    connection = await bench.open()
    channel = await connection.channel(confirm=True)
    await bench.exchange("dlx", "fanout")
    await channel.declare_queue("dead", arguments=QUORUM)
    await channel.bind_queue("dead", "dlx", "")
    dead, results = await Inbox.of(connection, "dead"), []
    for name, argument, policy in (("a", -1, 1), ("b", 1, -1), ("c", 5, 1)):
        await bench.policy(name, f"^{name}$", "quorum_queues", delivery_limit=policy, dead_letter_exchange="dlx")
        await channel.declare_queue(name, arguments={**QUORUM, "x-delivery-limit": argument})
        await channel.publish("", name, b"m")
        inbox = await Inbox.of(connection, name, prefetch=1)
        for _ in range(2):
            inbox.channel.reject((await inbox.get()).delivery_tag, requeue=True)
        results.append((name, counts(await dead.take())))
    return results


async def what_comes_back_goes_to_the_head(bench: Bench) -> Any:
    connection = await bench.open()
    channel = await connection.channel(confirm=True)
    results = []
    for name, arguments in (
        ("limited", {**QUORUM, "x-delivery-limit": 9}),
        ("free", {**QUORUM, "x-delivery-limit": -1}),
        ("classic", CLASSIC),
    ):
        await channel.declare_queue(name, arguments=arguments)
        for body in (b"a", b"b", b"c", b"d", b"e"):
            await channel.publish("", name, body)
        inbox = await Inbox.of(connection, name, prefetch=3)
        held = [await inbox.get() for _ in range(3)]
        inbox.channel.reject(held[1].delivery_tag, requeue=True)
        inbox.channel.reject(held[0].delivery_tag, requeue=True)
        order = [(await inbox.get()).body for _ in range(2)]
        await inbox.channel.close()
        await ready(channel, name, 5)
        after = await Inbox.of(connection, name, prefetch=10)
        results.append((name, order, await after.bodies(5)))
    return results


async def what_a_client_says_of_deliveries_is_passed_on_until_the_broker_counts(bench: Bench) -> Any:
    connection = await bench.open()
    channel = await _limited(bench, connection)
    inbox = await Inbox.of(connection, "q", prefetch=1)
    await inbox.take()
    await channel.publish("", "q", b"n", Properties(headers={"x-delivery-count": 7, "x-acquired-count": 9}))
    results = []
    for _ in range(3):
        message = await inbox.get()
        results.append(seen(message))
        inbox.channel.reject(message.delivery_tag, requeue=True)
    return results, counts(await (await Inbox.of(connection, "dead")).take())


async def a_dead_letter_counts_on_in_its_new_queue(bench: Bench) -> Any:
    connection = await bench.open()
    channel = await _limited(bench, connection, limit=0)
    for name, arguments in (("next", {**QUORUM, "x-delivery-limit": 1}), ("classic", CLASSIC)):
        await channel.declare_queue(name, arguments=arguments)
        await channel.bind_queue(name, "dlx", "")
    inbox = await Inbox.of(connection, "q")
    inbox.channel.reject((await inbox.get()).delivery_tag, requeue=True)
    results = []
    for name in ("next", "classic", "dead"):
        inbox = await Inbox.of(connection, name, prefetch=1)
        message = await inbox.get()
        inbox.channel.reject(message.delivery_tag, requeue=True)
        await inbox.channel.declare_queue(name, passive=True)  # the broker has seen the reject, too
        await channel.publish("", name, b"marker")
        results.append((counts(message), counts(await inbox.take())))
    return results


async def a_dead_letter_tells_of_failures_not_of_hand_outs(bench: Bench) -> Any:
    connection = await bench.open()
    await _limited(bench, connection, limit=9)
    inbox = await Inbox.of(connection, "q")
    for _ in range(3):
        inbox.channel.give_back((await inbox.get()).delivery_tag)
    message = await inbox.get()
    inbox.channel.reject(message.delivery_tag, requeue=False)
    dead = await Inbox.of(connection, "dead")
    letter = await dead.get()
    results = [counts(message), counts(letter)]
    for _ in range(3):
        dead.channel.give_back(letter.delivery_tag)
        letter = await dead.get()
        results.append(counts(letter))
    return results


async def a_classic_queue_counts_nothing(bench: Bench) -> Any:
    connection = await bench.open()
    channel = await connection.channel(confirm=True)
    await channel.declare_queue("q", arguments=CLASSIC)
    await channel.publish("", "q", b"m")
    inbox = await Inbox.of(connection, "q")
    results = []
    for _ in range(3):
        message = await inbox.get()
        results.append(counts(message))
        inbox.channel.reject(message.delivery_tag, requeue=True)
    return results


async def what_a_closed_channel_held_is_ready_again(bench: Bench) -> Any:
    connection = await bench.open()
    channel = await connection.channel(confirm=True)
    await channel.declare_queue("q", arguments=QUORUM)
    for body in (b"a", b"b", b"c"):
        await channel.publish("", "q", body)
    inbox = await Inbox.of(connection, "q", prefetch=2)
    for _ in range(2):
        await inbox.get()
    await ready(channel, "q", 1)
    await inbox.channel.close()
    await ready(channel, "q", 3)
    again = await Inbox.of(connection, "q")
    return [counts(await again.take()) for _ in range(3)]


async def totals_show_what_is_ready_and_unacknowledged(bench: Bench) -> Any:
    connection = await bench.open()
    channel = await connection.channel(confirm=True)
    await channel.declare_queue("q", arguments=QUORUM)
    for body in (b"a", b"b", b"c"):
        await channel.publish("", "q", body)
    inbox = await Inbox.of(connection, "q", prefetch=2)
    await inbox.get()

    async def shown() -> bool:
        return await bench.totals("q") == (1, 2, 3)

    await until(shown)
    await channel.delete_queue("q")
    return await bench.totals("q")
