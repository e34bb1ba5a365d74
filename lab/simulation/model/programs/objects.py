"""Programs about queues as objects: declared, counted, locked, deleted, and who may do what."""

from __future__ import annotations

from typing import Any

from simulation.model.programs.bench import CLASSIC, QUORUM, Bench, Inbox, ended, gone, outcome, ready, until


async def a_passive_declare_counts_ready_messages_and_consumers(bench: Bench) -> Any:
    connection = await bench.open()
    channel = await connection.channel(confirm=True)
    results = [await outcome((await connection.channel()).declare_queue("q", passive=True))]
    results.append(await channel.declare_queue("q", arguments=QUORUM))
    for body in (b"1", b"2", b"3"):
        await channel.publish("", "q", body)
    await ready(channel, "q", 3)
    inbox = await Inbox.of(connection, "q", prefetch=1)
    message = await inbox.get()
    results.append(await channel.declare_queue("q", passive=True))
    await inbox.channel.cancel(inbox.tag)
    results.append(await channel.declare_queue("q", passive=True))
    inbox.channel.ack(message.delivery_tag)

    async def without() -> bool:
        return (await channel.declare_queue("q", passive=True)).consumers == 0

    await until(without)
    return results, await channel.declare_queue("q", passive=True)


async def deleting_a_queue_cancels_its_consumer_and_loses_what_it_held(bench: Bench) -> Any:
    connection = await bench.open()
    channel = await connection.channel(confirm=True)
    await channel.declare_queue("q", arguments=QUORUM)
    for body in (b"1", b"2", b"3"):
        await channel.publish("", "q", body)
    inbox = await Inbox.of(connection, "q", prefetch=1)
    message = await inbox.get()
    deleted = await channel.delete_queue("q")
    await until(inbox.cancelled.is_set)
    inbox.channel.ack(message.delivery_tag)
    again = await inbox.channel.declare_queue("q", arguments=QUORUM)
    gone = await channel.delete_queue("never there")
    return deleted, again, gone, inbox.channel.is_open


async def a_quorum_queue_has_no_conditional_delete(bench: Bench) -> Any:
    connection = await bench.open()
    channel = await connection.channel()
    await channel.declare_queue("q", arguments=QUORUM)
    channel._pika.queue_delete("q", if_empty=True, callback=lambda _: None)
    reason = await connection.wait_closed()
    other = await (await bench.open()).channel()
    return None if reason is None else reason.code, await other.declare_queue("q", passive=True)


async def an_exclusive_queue_locks_others_out_until_its_owner_is_gone(bench: Bench) -> Any:
    owner = await bench.open()
    other = await bench.open()
    await (await owner.channel()).declare_queue("lock", exclusive=True, durable=False)
    results = [
        await outcome((await other.channel()).declare_queue("lock", exclusive=True, durable=False)),
        await outcome((await other.channel()).declare_queue("lock", passive=True)),
        await outcome(Inbox.of(other, "lock")),
        await outcome((await other.channel()).delete_queue("lock")),
        await outcome((await other.channel(confirm=True)).publish("", "lock", b"", mandatory=True)),
        await (await owner.channel()).declare_queue("lock", exclusive=True, durable=False),
    ]
    await owner.close()

    async def free() -> bool:
        found = await outcome((await other.channel()).declare_queue("lock", exclusive=True, durable=False))
        return bool(found == ("lock", 0, 0))

    await until(free)
    return results


async def a_queue_cannot_be_declared_in_two_ways(bench: Bench) -> Any:
    connection = await bench.open()
    channel = await connection.channel()
    await channel.declare_queue("q", arguments={**QUORUM, "x-delivery-limit": 5, "x-osrdyne-key": "k"})

    async def again(name: str = "q", **how: Any) -> Any:
        return await outcome((await connection.channel()).declare_queue(name, **how))

    return [
        await again(arguments={**QUORUM, "x-delivery-limit": 5, "x-osrdyne-key": "other"}),
        await again(arguments=QUORUM),
        await again(arguments=CLASSIC),
        await again(durable=False, arguments={**QUORUM, "x-delivery-limit": 5}),
        await again("amq.mine"),
        (await again(""))[-1],
        (await again("", durable=False, exclusive=True))[0].startswith("amq.gen-"),
        (await again("d"))[0],
        await again("d", arguments=QUORUM),
        await again("d", arguments=CLASSIC),
    ]


async def a_quorum_queue_is_durable_and_shared(bench: Bench) -> Any:
    connection = await bench.open()
    return [
        await outcome((await connection.channel()).declare_queue("a", durable=False, arguments=QUORUM)),
        await outcome((await connection.channel()).declare_queue("b", exclusive=True, arguments=QUORUM)),
        await outcome((await connection.channel()).declare_queue("c", durable=False, exclusive=True)),
        connection.is_open,
    ]


async def binding_what_is_not_there_closes_the_channel(bench: Bench) -> Any:
    connection = await bench.open()
    await bench.exchange("x")
    channel = await connection.channel()
    await channel.declare_queue("q", arguments=QUORUM)
    twice = [await outcome(channel.bind_queue("q", "x", "k")) for _ in range(2)]
    twice += [await outcome(channel.unbind_queue("q", "x", "k")) for _ in range(2)]
    return twice, [
        await outcome(getattr(await connection.channel(), verb)(queue, exchange, "k"))
        for verb in ("bind_queue", "unbind_queue")
        for queue, exchange in (("missing", "x"), ("q", "missing"))
    ]


async def permissions_are_asked_for_each_operation(bench: Bench) -> Any:
    admin = await bench.open()
    channel = await admin.channel()
    await bench.exchange("x")
    await channel.declare_queue("mine", arguments=QUORUM)
    await channel.declare_queue("other", arguments=QUORUM)
    await channel.declare_queue("readable", arguments=QUORUM)
    await bench.permit("user", "^mine$", "^(mine|x)$", "^(mine|readable)$")
    connection = await bench.open("user")

    async def attempt(verb: str, *arguments: Any, **how: Any) -> Any:
        return await outcome(getattr(await connection.channel(confirm=True), verb)(*arguments, **how))

    return [
        await attempt("declare_queue", "mine", arguments=QUORUM),
        await attempt("declare_queue", "new", arguments=QUORUM),
        await attempt("declare_queue", "other", passive=True),
        await attempt("declare_queue", "readable", passive=True),
        await attempt("declare_queue", "readable", arguments=QUORUM),
        await attempt("delete_queue", "other"),
        await attempt("delete_queue", "missing"),
        await attempt("bind_queue", "mine", "x", "k"),
        await attempt("unbind_queue", "mine", "x", "k"),
        await attempt("publish", "x", "k", b""),
        await attempt("publish", "", "mine", b""),
        (await outcome(Inbox.of(connection, "other"))),
        connection.is_open,
    ]


async def a_permission_that_is_taken_away_is_missed_at_the_next_operation(bench: Bench) -> Any:
    await bench.permit("user", ".*", ".*", ".*")
    connection = await bench.open("user")
    channel = await connection.channel(confirm=True)
    await channel.declare_queue("q", arguments=QUORUM)
    inbox = await Inbox.of(connection, "q")
    await channel.publish("", "q", b"before")
    await bench.permit("user", "^$", "^$", "^$")
    taken = (await inbox.take()).body
    admin = await (await bench.open()).channel(confirm=True)
    await admin.publish("", "q", b"after")
    still = (await inbox.take()).body

    async def refused() -> bool:
        looked = await outcome((await connection.channel()).declare_queue("new", arguments=QUORUM))
        return bool(looked == ("AccessRefused", 403))

    await until(refused)
    fresh = await connection.channel(confirm=True)
    return taken, still, await outcome(fresh.publish("", "q", b"")), await ended(fresh)


async def a_queue_that_expires_is_gone_when_unused(bench: Bench) -> Any:
    connection = await bench.open()
    await (await connection.channel()).declare_queue("q", arguments={**CLASSIC, "x-expires": 300})
    inbox = await Inbox.of(connection, "q")
    await inbox.channel.cancel(inbox.tag)

    await gone(await connection.channel(confirm=True), "q")
    return inbox.cancelled.is_set(), await outcome(Inbox.of(connection, "q"))
