"""Programs about messages that expire, are refused or exceed a length, and become dead letters."""

from __future__ import annotations

from typing import Any

from osrdyne_amqp import Channel, Connection, Properties
from simulation.model.programs.bench import CLASSIC, QUORUM, Bench, Inbox, outcome, ready, seen, until

_AT_LEAST_ONCE = {"dead_letter_strategy": "at-least-once", "overflow": "reject-publish"}


async def _with_dead_letters(bench: Bench, connection: Connection, **policy: Any) -> Channel:
    """Declare a quorum queue `q` whose dead letters go to the queue `dead`, by a policy. Return a confirm channel."""
    channel = await connection.channel(confirm=True)
    await bench.exchange("dlx", "fanout")
    await channel.declare_queue("dead", arguments=QUORUM)
    await channel.bind_queue("dead", "dlx", "")
    await bench.policy("q", "^q$", "quorum_queues", dead_letter_exchange="dlx", **_AT_LEAST_ONCE, **policy)
    await channel.declare_queue("q", arguments=QUORUM)
    return channel


async def a_message_expires_by_the_queues_time(bench: Bench) -> Any:
    connection = await bench.open()
    channel = await _with_dead_letters(bench, connection, message_ttl=200)
    await channel.publish("", "q", b"m", Properties(correlation_id="c", reply_to="r", headers={"a": 1}))
    return seen(await (await Inbox.of(connection, "dead")).take())


async def a_message_expires_by_its_own_time_which_is_taken_from_it(bench: Bench) -> Any:
    connection = await bench.open()
    channel = await _with_dead_letters(bench, connection, message_ttl=60000)
    await channel.publish("", "q", b"own", Properties(expiration="200"))
    inbox = await Inbox.of(connection, "dead")
    first = seen(await inbox.take())
    await bench.policy("q", "^q$", "quorum_queues", dead_letter_exchange="dlx", message_ttl=200, **_AT_LEAST_ONCE)
    await channel.publish("", "q", b"queue's", Properties(expiration="60000"))
    await channel.publish("", "q", b"at once", Properties(expiration="0"))
    return first, sorted([seen(await inbox.take()) for _ in range(2)], key=str)


async def a_time_to_live_counts_for_what_comes_after_it(bench: Bench) -> Any:
    connection = await bench.open()
    channel = await _with_dead_letters(bench, connection)
    await channel.publish("", "q", b"before")
    await ready(channel, "q", 1)
    await bench.policy("q", "^q$", "quorum_queues", dead_letter_exchange="dlx", message_ttl=200, **_AT_LEAST_ONCE)
    await channel.publish("", "q", b"after")
    inbox = await Inbox.of(connection, "q", prefetch=1)
    held = await inbox.get()
    dead = await Inbox.of(connection, "dead")
    first = (await dead.take()).body
    await bench.policy("q", "^q$", "quorum_queues", dead_letter_exchange="dlx", **_AT_LEAST_ONCE)
    inbox.channel.reject(held.delivery_tag, requeue=True)
    return held.body, first, (await inbox.take()).body, dead.quiet


async def what_came_with_a_time_to_live_keeps_it_when_the_policy_goes(bench: Bench) -> Any:
    connection = await bench.open()
    channel = await _with_dead_letters(bench, connection, message_ttl=1500)
    await channel.publish("", "q", b"m")
    await ready(channel, "q", 1)
    await bench.no_policy("q")
    await channel.publish("", "q", b"n")
    await ready(channel, "q", 1)
    return [(await (await Inbox.of(connection, "q")).take()).body]


async def a_dead_letter_dies_by_the_rules_of_its_time(bench: Bench) -> Any:
    connection = await bench.open()
    channel = await _with_dead_letters(bench, connection)
    await channel.publish("", "q", b"m")
    inbox = await Inbox.of(connection, "q", prefetch=1)
    held = await inbox.get()
    await bench.exchange("other", "fanout")
    await channel.declare_queue("later", arguments=QUORUM)
    await channel.bind_queue("later", "other", "")
    await bench.policy("q", "^q$", "quorum_queues", dead_letter_exchange="other", **_AT_LEAST_ONCE)
    inbox.channel.reject(held.delivery_tag, requeue=False)
    return seen(await (await Inbox.of(connection, "later")).take())


async def only_the_head_expires(bench: Bench) -> Any:
    connection = await bench.open()
    channel = await _with_dead_letters(bench, connection)
    await channel.publish("", "q", b"first", Properties(expiration="900"))
    await channel.publish("", "q", b"second", Properties(expiration="100"))
    dead = await Inbox.of(connection, "dead")
    return [(await dead.take()).body for _ in range(2)]


async def what_is_held_expires_only_when_it_comes_back(bench: Bench) -> Any:
    connection = await bench.open()
    channel = await _with_dead_letters(bench, connection, message_ttl=300)
    await channel.publish("", "q", b"held")
    inbox = await Inbox.of(connection, "q", prefetch=1)
    held = await inbox.get()
    await channel.publish("", "q", b"behind")
    dead = await Inbox.of(connection, "dead")
    first = (await dead.take()).body
    quiet = dead.quiet
    inbox.channel.reject(held.delivery_tag, requeue=True)
    second = seen(await dead.take())
    await channel.publish("", "q", b"held by a channel")
    await inbox.get()
    await channel.publish("", "q", b"behind")
    third = (await dead.take()).body
    await inbox.channel.close()
    return first, quiet, second, third, seen(await dead.take())


async def a_refused_message_is_a_dead_letter(bench: Bench) -> Any:
    connection = await bench.open()
    channel = await _with_dead_letters(bench, connection)
    await bench.exchange("x")
    await channel.bind_queue("q", "x", "key")
    await channel.publish("x", "key", b"m", Properties(headers={"CC": ["other"]}))
    inbox = await Inbox.of(connection, "q")
    inbox.channel.reject((await inbox.get()).delivery_tag, requeue=False)
    return seen(await (await Inbox.of(connection, "dead")).take())


async def without_a_dead_letter_exchange_the_dead_are_gone(bench: Bench) -> Any:
    connection = await bench.open()
    channel = await connection.channel(confirm=True)
    results: list[Any] = []
    for name, kind in (("q", QUORUM), ("c", CLASSIC)):
        await channel.declare_queue(name, arguments=kind)
        await channel.publish("", name, b"m")
        inbox = await Inbox.of(connection, name)
        inbox.channel.reject((await inbox.get()).delivery_tag, requeue=False)
        await channel.publish("", name, b"short", Properties(expiration="0"))
        await channel.publish("", name, b"marker")
        results.append((await inbox.take()).body)
    return results


async def at_most_once_loses_what_it_cannot_route(bench: Bench) -> Any:
    connection = await bench.open()
    channel = await connection.channel(confirm=True)
    inboxes = {}
    for name, kind in (("q", QUORUM), ("c", CLASSIC)):
        await channel.declare_queue(name, arguments={**kind, "x-dead-letter-exchange": "later"})
        await channel.publish("", name, b"lost")
        inbox = inboxes[name] = await Inbox.of(connection, name)
        inbox.channel.reject((await inbox.get()).delivery_tag, requeue=False)
        await channel.publish("", name, b"marker")
        await inbox.take()
    await bench.exchange("later", "fanout")
    await channel.declare_queue("dead", arguments=QUORUM)
    await channel.bind_queue("dead", "later", "")
    for name, inbox in inboxes.items():
        await channel.publish("", name, b"kept by " + name.encode())
        inbox.channel.reject((await inbox.get()).delivery_tag, requeue=False)
    dead = await Inbox.of(connection, "dead")
    return sorted(await dead.bodies(2))


async def a_letter_that_dies_again_remembers_both_deaths(bench: Bench) -> Any:
    connection = await bench.open()
    channel = await _with_dead_letters(bench, connection, message_ttl=200)
    arguments = {**QUORUM, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "last"}
    await channel.declare_queue("middle", arguments=arguments)
    await channel.declare_queue("last", arguments={**QUORUM, "x-dead-letter-exchange": "dlx"})
    await channel.delete_queue("dead")
    await channel.bind_queue("middle", "dlx", "")
    await channel.publish("", "q", b"m")
    middle, last = await Inbox.of(connection, "middle"), await Inbox.of(connection, "last")
    results = []
    for inbox in (middle, last, middle, last):
        message = await inbox.get()
        results.append(seen(message))
        inbox.channel.reject(message.delivery_tag, requeue=False)
    return results


async def what_a_client_says_of_deaths_is_not_believed(bench: Bench) -> Any:
    connection = await bench.open()
    channel = await _with_dead_letters(bench, connection, message_ttl=200)
    dead = await Inbox.of(connection, "dead")
    await channel.publish("", "q", b"m")
    letter = await dead.take()
    await channel.publish("", "q", b"again", letter.properties)
    return seen(await dead.take())


async def the_alternate_exchange_takes_dead_letters_too(bench: Bench) -> Any:
    connection = await bench.open()
    channel = await connection.channel(confirm=True)
    await bench.exchange("dlx")
    await bench.exchange("rest", "fanout")
    await bench.policy("ae", "^dlx$", "exchanges", alternate_exchange="rest")
    await channel.declare_queue("dead", arguments=QUORUM)
    await channel.bind_queue("dead", "rest", "")
    await bench.policy("q", "^q$", "quorum_queues", dead_letter_exchange="dlx", message_ttl=100, **_AT_LEAST_ONCE)
    await channel.declare_queue("q", arguments=QUORUM)
    await channel.publish("", "q", b"m")
    return seen(await (await Inbox.of(connection, "dead")).take())


async def a_classic_queue_dead_letters_too(bench: Bench) -> Any:
    connection = await bench.open()
    channel = await connection.channel(confirm=True)
    await bench.exchange("dlx", "fanout")
    await channel.declare_queue("dead", arguments=QUORUM)
    await channel.bind_queue("dead", "dlx", "")
    arguments = {**CLASSIC, "x-dead-letter-exchange": "dlx", "x-max-length": 1}
    await channel.declare_queue("c", arguments=arguments)
    await channel.publish("", "c", b"old")
    await channel.publish("", "c", b"new", Properties(expiration="100"))
    dead = await Inbox.of(connection, "dead")
    return [seen(await dead.take()) for _ in range(2)]


async def dead_letters_that_cannot_arrive_are_kept_until_the_policy_goes(bench: Bench) -> Any:
    connection = await bench.open()
    channel = await _with_dead_letters(bench, connection, message_ttl=100)
    await channel.unbind_queue("dead", "dlx", "")
    await channel.publish("", "q", b"m")

    async def kept() -> bool:
        return await bench.totals("q") == (0, 0, 1)

    await until(kept)
    looked = await channel.declare_queue("q", passive=True)
    await bench.policy("q", "^q$", "quorum_queues", message_ttl=100)

    async def lost() -> bool:
        return await bench.totals("q") == (0, 0, 0)

    await until(lost)
    return looked


async def a_queue_that_is_deleted_has_no_dead_letters(bench: Bench) -> Any:
    connection = await bench.open()
    channel = await _with_dead_letters(bench, connection)
    await channel.publish("", "q", b"lost")
    await ready(channel, "q", 1)
    deleted = await channel.delete_queue("q")
    await channel.publish("dlx", "", b"marker")
    dead = await Inbox.of(connection, "dead")
    return deleted, (await dead.take()).body, await outcome(channel.publish("", "q", b"", mandatory=True))
