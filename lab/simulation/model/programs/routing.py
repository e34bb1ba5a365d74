"""Programs about where a publish goes, and what its publisher hears."""

from __future__ import annotations

from typing import Any

from osrdyne_amqp import Properties
from simulation.model.programs.bench import QUORUM, Bench, Inbox, gone, outcome, ready, seen


async def a_direct_exchange_routes_by_its_bindings(bench: Bench) -> Any:
    connection = await bench.open()
    channel = await connection.channel(confirm=True)
    await bench.exchange("x")
    for queue in ("a", "b"):
        await channel.declare_queue(queue, arguments=QUORUM)
        await channel.bind_queue(queue, "x", "both")
    await channel.bind_queue("a", "x", "only a")
    for key in ("both", "only a", "none"):
        await channel.publish("x", key, key.encode())
    await ready(channel, "a", 2)
    await ready(channel, "b", 1)
    inbox = await Inbox.of(connection, "a")
    return await inbox.bodies(2)


async def a_fanout_exchange_gives_each_queue_one_copy(bench: Bench) -> Any:
    connection = await bench.open()
    channel = await connection.channel(confirm=True)
    await bench.exchange("x", "fanout")
    for queue in ("a", "b"):
        await channel.declare_queue(queue, arguments=QUORUM)
        await channel.bind_queue(queue, "x", "one")
        await channel.bind_queue(queue, "x", "two")
    await channel.publish("x", "whatever", b"m", Properties(correlation_id="c", headers={"n": 1, "l": ["a"]}))
    return [seen(await (await Inbox.of(connection, queue)).take()) for queue in ("a", "b")]


async def unroutable_is_confirmed_or_returned(bench: Bench) -> Any:
    connection = await bench.open()
    channel = await connection.channel(confirm=True)
    await bench.exchange("x")
    return [
        await outcome(channel.publish(exchange, "no-queue", b"", mandatory=mandatory))
        for exchange in ("", "x")
        for mandatory in (False, True)
    ]


async def a_missing_exchange_closes_the_channel(bench: Bench) -> Any:
    connection = await bench.open()
    channel = await connection.channel(confirm=True)
    first = await outcome(channel.publish("missing", "k", b""))
    return first, await outcome(channel.publish("", "k", b"")), connection.is_open


async def the_alternate_exchange_of_a_policy_takes_the_unroutable(bench: Bench) -> Any:
    connection = await bench.open()
    channel = await connection.channel(confirm=True)
    await bench.exchange("x")
    await bench.exchange("orphans", "fanout")
    await channel.declare_queue("orphan", arguments=QUORUM)
    await channel.bind_queue("orphan", "orphans", "")
    await bench.policy("ae", "^x$", "exchanges", alternate_exchange="orphans")
    inbox = await Inbox.of(connection, "orphan")
    results = [await outcome(channel.publish("x", "k", b"with", mandatory=True)), seen(await inbox.take())]
    await bench.no_policy("ae")
    results += [
        await outcome(channel.publish("x", "k", b"without", mandatory=mandatory)) for mandatory in (False, True)
    ]
    await bench.policy("ae", "^x$", "exchanges", alternate_exchange="orphans")
    results += [await outcome(channel.publish("x", "k", b"again", mandatory=True)), (await inbox.take()).body]
    await channel.unbind_queue("orphan", "orphans", "")
    results.append(await outcome(channel.publish("x", "k", b"nowhere", mandatory=True)))
    return results, inbox.quiet


async def copies_by_header_keep_the_alternate_exchange_out(bench: Bench) -> Any:
    connection = await bench.open()
    channel = await connection.channel(confirm=True)
    await bench.exchange("x")
    await bench.exchange("orphans", "fanout")
    for queue in ("orphan", "a", "b"):
        await channel.declare_queue(queue, arguments=QUORUM)
    await channel.bind_queue("orphan", "orphans", "")
    await channel.bind_queue("a", "x", "a")
    await channel.bind_queue("b", "x", "b")
    await bench.policy("ae", "^x$", "exchanges", alternate_exchange="orphans")
    await channel.publish("x", "no-queue", b"m", Properties(headers={"CC": ["a"], "BCC": ["b"]}))
    await ready(channel, "a", 1)
    await ready(channel, "b", 1)
    empty = await channel.declare_queue("orphan", passive=True)
    return [seen(await (await Inbox.of(connection, queue)).take()) for queue in ("a", "b")], empty


async def direct_reply_to_reaches_its_caller_until_that_is_gone(bench: Bench) -> Any:
    caller = await bench.open()
    worker = await bench.open()
    asking = await caller.channel(confirm=True)
    answering = await worker.channel(confirm=True)
    await answering.declare_queue("q", arguments=QUORUM)
    refused = await outcome(
        (await caller.channel(confirm=True)).publish("", "q", b"", Properties(reply_to="amq.rabbitmq.reply-to"))
    )
    replies = await Inbox.of(caller, "amq.rabbitmq.reply-to", no_ack=True, channel=asking)
    await asking.publish("", "q", b"question", Properties(reply_to="amq.rabbitmq.reply-to", correlation_id="c"))
    question = await (await Inbox.of(worker, "q")).take()
    address = question.properties.reply_to
    mine = address.startswith("amq.rabbitmq.reply-to.")
    sent = await outcome(answering.publish("", address, b"answer", Properties(correlation_id="c"), mandatory=True))
    reply = await replies.get()
    await caller.close()
    late = [await outcome(answering.publish("", address, b"late", mandatory=mandatory)) for mandatory in (False, True)]
    return refused, mine, sent, (reply.body, reply.exchange, reply.routing_key == address), late


async def a_reply_to_a_vanished_queue_is_returned(bench: Bench) -> Any:
    caller = await bench.open()
    answering = await (await bench.open()).channel(confirm=True)
    channel = await caller.channel()
    await channel.declare_queue("reply", exclusive=True, durable=False)
    there = await outcome(answering.publish("", "reply", b"", mandatory=True))
    await caller.close()
    await gone(answering, "reply")
    return there, await outcome(answering.publish_final("", "reply", b""))
