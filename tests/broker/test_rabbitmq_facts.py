"""Facts about RabbitMQ on which decisions rest, on a real broker: docs/reference/rabbitmq-facts.md says them."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote, urlsplit

import pika
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from osrdyne_amqp import Connection, Message, Properties
from osrdyne_amqp.errors import BrokerError, Returned
from osrdyne_protocol.names import is_reply_address
from testbed.amqp_1_0 import MAP, TRUE, UUID, LinkRefused, Sender, compound, message, text
from testbed.waiting import PATIENCE_SECONDS, until
from tests.conftest import Vhost

pytestmark = pytest.mark.both_versions
QUORUM = {"x-queue-type": "quorum"}
#: What the policy of request queues says of dead letters, as arguments.
AT_LEAST_ONCE = {
    **QUORUM,
    "x-dead-letter-exchange": "dlx",
    "x-dead-letter-strategy": "at-least-once",
    "x-overflow": "reject-publish",
}


def open_channel(vhost: Vhost) -> BlockingChannel:
    channel = pika.BlockingConnection(pika.URLParameters(vhost.amqp_uri())).channel()
    channel.confirm_delivery()
    return channel


@pytest.fixture
def channel(vhost: Vhost) -> Iterator[BlockingChannel]:
    opened = open_channel(vhost)
    yield opened
    if opened.connection.is_open:
        opened.connection.close()


def declare(channel: BlockingChannel, queue: str, arguments: Any = QUORUM) -> str:
    channel.queue_declare(queue, durable=True, arguments=arguments)
    return queue


def with_dead_letters(channel: BlockingChannel, arguments: Any = AT_LEAST_ONCE) -> None:
    """Declare the queue `q`, whose dead letters go to `dead` through the exchange `dlx`."""
    channel.exchange_declare("dlx", "fanout", durable=True)
    channel.queue_bind(declare(channel, "dead"), "dlx")
    declare(channel, "q", arguments)


def publish(channel: BlockingChannel, body: bytes, queue: str = "q", **properties: Any) -> None:
    channel.basic_publish("", queue, body, pika.BasicProperties(delivery_mode=2, **properties))


def take(channel: BlockingChannel, queue: str, *, ack: bool = False) -> tuple[int, Any, bytes]:
    """Wait for a message; return its delivery tag, properties and body."""
    method, properties, body = until(
        lambda: one if (one := channel.basic_get(queue, auto_ack=ack))[0] else None, what=f"a message in {queue}"
    )
    return method.delivery_tag, properties, body


def ready(channel: BlockingChannel, queue: str = "q") -> int:
    return int(channel.queue_declare(queue, passive=True).method.message_count)


def totals(vhost: Vhost, queue: str = "q") -> tuple[Any, ...]:
    """Return ready, unacknowledged and all messages as the management API counts them."""
    found = vhost.broker.management.queue(vhost.name, queue) or {}
    return tuple(found.get(name) for name in ("messages_ready", "messages_unacknowledged", "messages"))


# --- deleting a queue -------------------------------------------------------------------------------------------------


def test_a_deleted_queue_loses_its_messages_and_reports_nothing(channel: BlockingChannel) -> None:
    with_dead_letters(channel)
    publish(channel, b"held")
    publish(channel, b"ready")
    take(channel, "q")

    channel.queue_delete("q")

    channel.basic_publish("dlx", "", b"marker")
    assert take(channel, "dead", ack=True)[2] == b"marker"
    assert ready(channel, "dead") == 0


def test_a_quorum_queue_cannot_be_deleted_only_if_it_is_empty(channel: BlockingChannel, vhost: Vhost) -> None:
    declare(channel, "q")

    with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as caught:
        channel.queue_delete("q", if_empty=True)

    assert caught.value.reply_code == 540
    other = open_channel(vhost)
    assert ready(other) == 0
    other.connection.close()


def test_if_empty_of_a_classic_queue_counts_only_ready_messages(channel: BlockingChannel) -> None:
    declare(channel, "q", {"x-queue-type": "classic"})
    publish(channel, b"held")
    take(channel, "q")

    channel.queue_delete("q", if_empty=True)

    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="404"):
        ready(channel)


def test_a_passive_declare_counts_only_ready_messages(channel: BlockingChannel) -> None:
    declare(channel, "q")
    publish(channel, b"held")
    until(lambda: ready(channel) == 1)

    take(channel, "q")

    until(lambda: ready(channel) == 0)


def test_the_management_api_shows_unacknowledged_messages_late(channel: BlockingChannel, vhost: Vhost) -> None:
    declare(channel, "q")

    def late() -> bool:
        publish(channel, b"held")
        until(lambda: totals(vhost) == (1, 0, 1))
        tag = take(channel, "q")[0]
        seen = totals(vhost)
        # It does come in the end.
        until(lambda: totals(vhost) == (0, 1, 1))
        channel.basic_ack(tag)
        until(lambda: totals(vhost) == (0, 0, 0))
        return seen == (1, 0, 1)

    # A sample may be taken between the two calls; it is not each time.
    until(late)


# --- messages that cannot be converted --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given",
    [
        {"application": UUID},
        {"application": {"x-character": b"\x73\0\0\0A"}},
        {"annotations": UUID},
        {"annotations": {"x-map": compound(MAP, [b"\x71\0\0\0\1", TRUE])}},
    ],
    ids=["a UUID", "a character", "a UUID as annotation", "a map with numbers as keys"],
)
def test_a_message_that_cannot_be_converted_closes_each_connection_until_a_policy_moves_it_on(
    vhost: Vhost, channel: BlockingChannel, given: dict[str, Any]
) -> None:
    """The argument says that there is no limit, and the policy's limit holds."""
    with_dead_letters(channel, {**AT_LEAST_ONCE, "x-delivery-limit": -1})
    vhost.broker.management.put(
        *("policies", vhost.name, "q"),
        body={"pattern": "^q$", "apply-to": "quorum_queues", "definition": {"delivery-limit": 2}},
    )
    until(lambda: (vhost.broker.management.queue(vhost.name, "q") or {}).get("policy") == "q", what="the policy")
    with Sender.to_queue(vhost.amqp_uri(), "q") as sender:
        sender.send(message(b"bad", **given))
        sender.send(message(b"good"))

    for _ in range(3):
        other = open_channel(vhost)
        other.basic_qos(prefetch_count=1)
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as caught:
            next(other.consume("q"))
        assert caught.value.reply_code == 541

    assert take(channel, "q", ack=True)[2] == b"good"
    until(lambda: ready(channel, "dead") == 1, what="the dead letter")


@pytest.mark.parametrize(
    "value",
    [
        b"\x74\x22\x50\0\x01",
        b"\x84\x22\x38" + bytes(5) + b"\x01",
        b"\x94\x22\x08" + bytes(13) + b"\x01",
        b"\x72\x7f\x80\0\0",
        b"\x82\x7f\xf8" + bytes(6),
    ],
    ids=["decimal32", "decimal64", "decimal128", "infinity", "not a number"],
)
def test_a_decimal_or_infinite_number_closes_the_connection_on_4_0_and_is_left_out_on_4_3(
    vhost: Vhost, channel: BlockingChannel, value: bytes
) -> None:
    declare(channel, "q")
    with Sender.to_queue(vhost.amqp_uri(), "q") as sender:
        sender.send(message(b"odd", application={"x-odd": value, "x-true": TRUE}))

    if vhost.broker.version == "4.0":
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as caught:
            next(open_channel(vhost).consume("q"))
        assert caught.value.reply_code == 541
    else:
        _, properties, body = take(channel, "q", ack=True)
        assert (body, properties.headers) == (b"odd", {"x-true": True})


@pytest.mark.parametrize(
    ("number", "received"),
    [(2**63 - 1, 2**63 - 1), (2**63, -(2**63)), (2**64 - 1, -1)],
    ids=["2^63-1", "2^63", "2^64-1"],
)
def test_the_largest_numbers_arrive_and_from_2_to_the_63_on_as_negative_ones(
    vhost: Vhost, channel: BlockingChannel, number: int, received: int
) -> None:
    declare(channel, "q")
    with Sender.to_queue(vhost.amqp_uri(), "q") as sender:
        sender.send(message(b"large", application={"x-number": b"\x80" + number.to_bytes(8)}))

    _, properties, body = take(channel, "q", ack=True)
    assert (body, properties.headers) == (b"large", {"x-number": received})


# --- dead letters -----------------------------------------------------------------------------------------------------


def test_a_dead_letter_names_its_first_death_last(channel: BlockingChannel) -> None:
    with_dead_letters(channel)
    channel.exchange_declare("x", "direct", durable=True)
    channel.queue_bind("q", "x", "key")
    declare(channel, "last")
    middle = {**QUORUM, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "last"}
    channel.queue_bind(declare(channel, "middle", middle), "dlx")
    channel.basic_publish("x", "key", b"m", pika.BasicProperties(expiration="50"))
    channel.basic_reject(take(channel, "middle")[0], requeue=False)

    properties = take(channel, "last")[1]

    newest, oldest = properties.headers["x-death"]
    assert (newest["queue"], newest["reason"]) == ("middle", "rejected")
    assert (oldest["queue"], oldest["reason"], oldest["routing-keys"]) == ("q", "expired", ["key"])
    assert (properties.headers["x-first-death-queue"], properties.headers["x-first-death-reason"]) == ("q", "expired")
    assert "x-first-death" not in properties.headers
    # What it had left to live is not a property any more.
    assert (properties.expiration, oldest["original-expiration"]) == (None, "50")


@pytest.mark.parametrize(("overflow", "kept"), [("reject-publish", 1), ("drop-head", 0)])
def test_at_least_once_needs_reject_publish(channel: BlockingChannel, vhost: Vhost, overflow: str, kept: int) -> None:
    with_dead_letters(channel, {**AT_LEAST_ONCE, "x-overflow": overflow})
    # Given that dead letters reach no queue
    channel.queue_unbind("dead", "dlx")
    publish(channel, b"m")
    tag = take(channel, "q")[0]
    until(lambda: totals(vhost) == (0, 1, 1))

    channel.basic_reject(tag, requeue=False)

    # Then the broker keeps it, or drops it as at-most-once does
    until(lambda: totals(vhost) == (0, 0, kept))


# --- deliveries that count --------------------------------------------------------------------------------------------


def gone_after(channel: BlockingChannel, queue: str, rounds: int, *, nack: bool = False) -> bool:
    """Give a message back so many times, and say whether it is gone then."""
    publish(channel, b"m", queue)
    give_back = channel.basic_nack if nack else channel.basic_reject
    for _ in range(rounds):
        give_back(take(channel, queue)[0], requeue=True)
    publish(channel, b"marker", queue)
    return take(channel, queue, ack=True)[2] == b"marker"


def test_a_queue_drops_what_fails_more_than_twenty_times_unless_its_limit_is_minus_one(
    channel: BlockingChannel,
) -> None:
    assert gone_after(channel, declare(channel, "limited"), 21)
    assert not gone_after(channel, declare(channel, "free", {**QUORUM, "x-delivery-limit": -1}), 21)


def test_a_reject_counts_as_a_failed_delivery_on_every_version_and_a_nack_does_not(
    channel: BlockingChannel, vhost: Vhost
) -> None:
    arguments = {**QUORUM, "x-delivery-limit": 1}
    assert gone_after(channel, declare(channel, "rejected", arguments), 2)
    assert gone_after(channel, declare(channel, "nacked", arguments), 2, nack=True) is (vhost.broker.version == "4.0")


def test_a_lost_channel_counts_as_a_failed_delivery(channel: BlockingChannel) -> None:
    declare(channel, "q", {**QUORUM, "x-delivery-limit": 1})
    publish(channel, b"m")
    for _ in range(2):
        other = channel.connection.channel()
        take(other, "q")
        other.close()
    publish(channel, b"marker")
    assert take(channel, "q")[2] == b"marker"


def test_what_a_lost_connection_held_comes_back_in_the_order_in_which_it_was_delivered(
    vhost: Vhost, channel: BlockingChannel
) -> None:
    declare(channel, "q")
    bodies = [b"%d" % number for number in range(12)]
    for body in bodies:
        publish(channel, body)
    other = open_channel(vhost)
    other.basic_qos(prefetch_count=3)
    held: list[bytes] = []
    # It consumes again whenever it holds as much as it may
    for most in (3, 6, 9, 12):
        tag = other.basic_consume("q", lambda *delivery: held.append(delivery[-1]))
        while len(held) < most:
            other.connection.process_data_events(PATIENCE_SECONDS)
        other.basic_cancel(tag)
    other.connection.close()
    assert held == bodies
    assert [take(channel, "q")[2] for _ in bodies] == bodies


def test_a_recover_counts_as_a_failed_delivery_on_4_0_only(channel: BlockingChannel, vhost: Vhost) -> None:
    declare(channel, "q")
    publish(channel, b"m")
    take(channel, "q")
    channel.basic_recover(requeue=True)
    count = take(channel, "q")[1].headers.get("x-delivery-count")
    assert count == (1 if vhost.broker.version == "4.0" else None)


# --- publishing a message a second time -------------------------------------------------------------------------------


def test_cc_and_bcc_fan_a_message_out_and_keep_it_from_the_alternate_exchange(channel: BlockingChannel) -> None:
    channel.exchange_declare("orphans", "fanout", durable=True)
    channel.exchange_declare("x", "direct", durable=True, arguments={"alternate-exchange": "orphans"})
    channel.queue_bind(declare(channel, "orphan"), "orphans")
    for queue in ("a", "b"):
        channel.queue_bind(declare(channel, queue), "x", queue)
    copies = pika.BasicProperties(headers={"CC": ["a"], "BCC": ["b"]})

    channel.basic_publish("x", "unbound", b"m", copies)

    # CC stays in the message, and would fan it out again; BCC does not.
    assert [take(channel, queue)[1].headers for queue in ("a", "b")] == [{"CC": ["a"]}] * 2
    assert ready(channel, "orphan") == 0


def test_a_message_with_another_user_closes_the_channel_that_publishes_it(channel: BlockingChannel) -> None:
    declare(channel, "q")
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as caught:
        publish(channel, b"m", user_id="another-user")
    assert caught.value.reply_code == 406


def test_a_message_of_amqp_1_0_with_another_user_is_refused(vhost: Vhost, channel: BlockingChannel) -> None:
    declare(channel, "q")
    with Sender.to_queue(vhost.amqp_uri(), "q") as sender, pytest.raises(LinkRefused, match="user"):
        sender.send(message(user_id="another-user"))
    own = unquote(urlsplit(vhost.amqp_uri()).username or "")
    with Sender.to_queue(vhost.amqp_uri(), "q") as sender:
        sender.send(message(user_id=own))
    assert take(channel, "q", ack=True)[1].user_id == own
    assert ready(channel) == 0


def test_a_user_with_the_tag_impersonator_may_send_as_another(vhost: Vhost, channel: BlockingChannel) -> None:
    declare(channel, "q")
    api, name = vhost.broker.management, f"impersonator-{vhost.name}"
    api.call("PUT", "users", name, body={"password": name, "tags": "impersonator"})
    try:
        api.call("PUT", "permissions", vhost.name, name, body={"configure": "", "write": ".*", "read": ""})
        with pika.BlockingConnection(pika.URLParameters(vhost.amqp_uri(name, name))) as other:
            other.channel().basic_publish("", "q", b"m", pika.BasicProperties(user_id="another-user"))
        assert take(channel, "q", ack=True)[1].user_id == "another-user"
    finally:
        api.delete("users", name)


def test_what_is_held_does_not_expire(channel: BlockingChannel) -> None:
    with_dead_letters(channel, {**AT_LEAST_ONCE, "x-message-ttl": 100})
    publish(channel, b"held")
    tag = take(channel, "q")[0]
    publish(channel, b"behind")

    assert take(channel, "dead")[2] == b"behind"
    assert ready(channel, "dead") == 0

    channel.basic_reject(tag, requeue=True)
    assert take(channel, "dead")[2] == b"held"


# --- messages that vanish ---------------------------------------------------------------------------------------------


def test_a_message_that_the_alternate_exchange_takes_is_not_returned(channel: BlockingChannel) -> None:
    channel.exchange_declare("orphans", "fanout", durable=True)
    channel.exchange_declare("x", "direct", durable=True, arguments={"alternate-exchange": "orphans"})
    channel.queue_bind(declare(channel, "orphan"), "orphans")
    channel.basic_publish("x", "unbound", b"m", mandatory=True)
    assert take(channel, "orphan")[2] == b"m"

    channel.queue_unbind("orphan", "orphans")
    with pytest.raises(pika.exceptions.UnroutableError):
        channel.basic_publish("x", "unbound", b"m", mandatory=True)
    # Without `mandatory` it is confirmed, and gone.
    channel.basic_publish("x", "unbound", b"m")


def test_a_full_queue_drops_its_oldest_and_confirms_each(channel: BlockingChannel) -> None:
    declare(channel, "q", {**QUORUM, "x-max-length": 1, "x-overflow": "drop-head"})
    for body in (b"first", b"second", b"last"):
        publish(channel, body)
    until(lambda: ready(channel) == 1)
    assert take(channel, "q")[2] == b"last"


# --- names ------------------------------------------------------------------------------------------------------------


async def test_line_breaks_are_stripped_from_the_name_of_a_queue(vhost: Vhost) -> None:
    connection = await Connection.open(vhost.amqp_uri(), name="test")
    channel = await connection.channel(confirm=True)
    # Our channel refuses such a name; what is below it does not.
    channel._pika.queue_declare("a\r\nb", durable=True, arguments=QUORUM, callback=lambda _: None)
    async with asyncio.timeout(PATIENCE_SECONDS):
        await channel.publish("", "ab", b"m", Properties(), mandatory=True)
    await connection.close()


def test_the_deaths_that_a_publisher_writes_are_replaced_by_the_brokers_own(
    channel: BlockingChannel, vhost: Vhost
) -> None:
    with_dead_letters(channel, {**AT_LEAST_ONCE, "x-message-ttl": 1})
    names = [f"x-{which}-death-{what}" for which in ("first", "last") for what in ("reason", "queue", "exchange")]
    death = {"queue": "forged", "reason": "delivery_limit", "count": 1, "exchange": "", "routing-keys": ["k"]}
    publish(channel, b"", headers={**dict.fromkeys(names, "forged"), "x-death": [death]})
    forged = {name: text("forged") for name in names}
    with Sender.to_queue(vhost.amqp_uri(), "q") as sender:
        sender.send(message(application=forged, annotations=forged))

    for _ in range(2):
        _, properties, _ = take(channel, "dead", ack=True)
        assert {properties.headers[f"x-{which}-death-queue"] for which in ("first", "last")} == {"q"}
        assert {properties.headers[f"x-{which}-death-reason"] for which in ("first", "last")} == {"expired"}
        assert [death["queue"] for death in properties.headers["x-death"]] == ["q"]


def test_the_first_death_that_a_publisher_writes_arrives_while_the_message_has_not_died(
    channel: BlockingChannel,
) -> None:
    declare(channel, "q")
    death = {"x-first-death-reason": "delivery_limit", "x-first-death-queue": "core-req-42"}
    publish(channel, b"", headers=death)
    assert take(channel, "q")[1].headers == death


# --- direct reply-to --------------------------------------------------------------------------------------------------


async def test_a_broken_address_of_direct_reply_to_closes_the_connection_that_publishes_to_it(vhost: Vhost) -> None:
    asking = await Connection.open(vhost.amqp_uri(), name="asks")
    asked: asyncio.Queue[Message] = asyncio.Queue()
    caller = await asking.channel(confirm=True)
    await caller.declare_queue("q", arguments=QUORUM)
    await caller.consume("q", asked.put_nowait, on_cancel=lambda: None)
    await caller.consume("amq.rabbitmq.reply-to", lambda _: None, on_cancel=lambda: None, no_ack=True)
    await caller.publish("", "q", b"", Properties(reply_to="amq.rabbitmq.reply-to"))
    address = (await asyncio.wait_for(asked.get(), PATIENCE_SECONDS)).properties.reply_to
    # Given an address as the broker writes it, and as a client may write it
    assert is_reply_address(address)
    others = [forged(address, node) for node in (b"reply@1", b"reply@9999999999")]
    broken = "amq.rabbitmq.reply-to.g1h2AA.x"
    await caller.publish("", "q", b"", Properties(reply_to=broken))
    assert (await asyncio.wait_for(asked.get(), PATIENCE_SECONDS)).properties.reply_to == broken

    # When a reply goes to one that is broken
    answering = await Connection.open(vhost.amqp_uri(), name="answers")
    for there in (address, *others):
        assert is_reply_address(there)
        with contextlib.suppress(Returned):
            await (await answering.channel(confirm=True)).publish("", there, b"", mandatory=True)
    with pytest.raises(BrokerError) as ended:
        await (await answering.channel(confirm=True)).publish("", broken, b"", mandatory=True)

    # Then 4.0 closes the connection, and only for that
    assert not is_reply_address(broken)
    if vhost.broker.version == "4.0":
        assert ended.value.code == 541
    else:
        assert isinstance(ended.value, Returned)
    await answering.close()
    await asking.close()


def forged(address: str, node: bytes) -> str:
    """An address of direct reply-to with another node."""
    process, key = address.removeprefix("amq.rabbitmq.reply-to.").split(".")
    encoded = b"\x83Xv\0" + bytes([len(node)]) + node + base64.b64decode(process)[-12:]
    return f"amq.rabbitmq.reply-to.{base64.b64encode(encoded).decode()}.{key}"
