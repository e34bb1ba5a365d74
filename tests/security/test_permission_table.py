"""The table of docs/reference/permissions.md: every user may do what the table says, and nothing else."""

from __future__ import annotations

import contextlib
import re
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import AMQPConnectionError, ChannelClosedByBroker

from osrdyne_pool.broker.management import ManagementRefused
from testbed.management import Management
from testbed.pool import Pool
from testbed.waiting import until
from tests.conftest import Vhost
from tests.security.test_permissions import (
    CHANGES,
    QUORUM,
    Action,
    api,
    code,
    consume,
    declare,
    make_request_queue,
    publish,
)

pytestmark = pytest.mark.both_versions

PAGE = (Path(__file__).parents[2] / "docs/reference/permissions.md").read_text()
ROLES = ("client", "worker", "daemon", "monitor", "operator", "pipeline")
ROWS = re.findall(r"^\| ([^|]+?) \|" + r" (yes|no) \|" * len(ROLES) + "$", PAGE, re.MULTILINE)
#: Operation -> role -> whether the page says that it is allowed.
TABLE = {row[0]: dict(zip(ROLES, (cell == "yes" for cell in row[1:]), strict=True)) for row in ROWS}


@pytest.fixture
def pool(vhost: Vhost) -> Iterator[Pool]:
    """A pool with a request queue that holds a request, and a reply queue of a stranger."""
    pool = Pool.on(vhost.broker, vhost.name)
    with pika.BlockingConnection(pika.URLParameters(vhost.amqp_uri())) as connection:
        channel = connection.channel()
        channel.queue_declare(f"reply-stranger-{'0' * 32}", durable=True)
        make_request_queue(channel, pool, "42")
    yield pool
    pool.remove_users()


def own_reply_queue(channel: BlockingChannel, pool: Pool) -> str:
    """A queue that only a client may have; others try under the client's name."""
    queue = f"reply-{pool.users.client}-{secrets.token_hex(16)}"
    channel.queue_declare(queue, durable=True)
    return queue


def reply_exchange(channel: BlockingChannel, pool: Pool) -> str:
    """An exchange under a name that only a client may use."""
    exchange = f"reply-{pool.users.client}-{secrets.token_hex(16)}"
    channel.exchange_declare(exchange, "fanout")
    return exchange


def dying_replies(exchange: Callable[[Pool], str]) -> Action:
    """A reply queue that hands on what dies in it to an exchange."""
    return lambda channel, pool: channel.queue_declare(
        f"reply-{pool.users.client}-{secrets.token_hex(16)}",
        durable=True,
        arguments={"x-dead-letter-exchange": exchange(pool), "x-message-ttl": 0},
    )


def delete(queue: Callable[[Pool], str]) -> Action:
    return lambda channel, pool: channel.queue_delete(queue(pool))


def purge(queue: Callable[[Pool], str]) -> Action:
    return lambda channel, pool: channel.queue_purge(queue(pool))


def others(api: Management, pool: Pool) -> None:
    """Raise as for a refusal where no other virtual host than the pool's is shown."""
    if {vhost["name"] for vhost in api.get("vhosts")} <= {pool.vhost}:
        raise ManagementRefused("GET", "vhosts", 403, "none")


def request_queue(pool: Pool) -> str:
    return pool.names.request_queue("42")


AMQP: dict[str, Action] = {
    "send a request": publish(lambda pool: pool.names.request_exchange),
    "put an orphan into the orphan queue": publish(lambda pool: pool.names.orphan_exchange),
    "put a letter into the dead-letter queue": publish(lambda pool: pool.names.dead_letter_exchange),
    "report activity": publish(lambda pool: pool.names.activity_exchange),
    "write into any queue of the virtual host, by its name": publish(lambda _: "", "core-poison"),
    "take requests": consume(request_queue),
    "take orphans": consume(lambda pool: pool.names.orphan_queue),
    "take dead letters": consume(lambda pool: pool.names.dead_letter_queue),
    "take activity": consume(lambda pool: pool.names.activity_queue),
    "take from the poison inventory": consume(lambda pool: pool.names.poison_queue),
    "read the events stream": consume(lambda pool: pool.names.events_stream, {"x-stream-offset": "first"}),
    "have a reply queue and read it": lambda channel, pool: channel.basic_consume(
        own_reply_queue(channel, pool), lambda *_: None
    ),
    "read the reply queue of another user": consume(lambda _: f"reply-stranger-{'0' * 32}"),
    "have activity sent to a queue of its own": lambda channel, pool: channel.queue_bind(
        own_reply_queue(channel, pool), pool.names.activity_exchange
    ),
    "make a request queue": declare(lambda _: "core-req-new", arguments=QUORUM),
    "bind a request queue": lambda channel, pool: channel.queue_bind(
        request_queue(pool), pool.names.request_exchange, "43"
    ),
    "delete a request queue": delete(request_queue),
    "empty a request queue": purge(request_queue),
    "empty the poison inventory": purge(lambda pool: pool.names.poison_queue),
    "delete the orphan queue": delete(lambda pool: pool.names.orphan_queue),
    "delete the events stream": delete(lambda pool: pool.names.events_stream),
    "hold the lock of the acting daemon": declare(lambda pool: pool.names.leader_queue, durable=False, exclusive=True),
    "make any other queue": declare(lambda _: "mine", arguments=QUORUM),
    "make an exchange with the name of a request queue": lambda channel, _: channel.exchange_declare(
        "core-req-mine", "fanout"
    ),
    "make an exchange with the name of its own reply queue": reply_exchange,
    "have that exchange route to the exchange for requests": lambda channel, pool: channel.exchange_bind(
        pool.names.request_exchange, reply_exchange(channel, pool)
    ),
    "send to that exchange": lambda channel, pool: channel.basic_publish(reply_exchange(channel, pool), "42", b""),
    "have what dies in its own reply queue sent as a request": dying_replies(lambda pool: pool.names.request_exchange),
    "have what dies there sent to a queue by its name": dying_replies(lambda _: ""),
    "have what dies there sent as activity": dying_replies(lambda pool: pool.names.activity_exchange),
    "make any other exchange": lambda channel, _: channel.exchange_declare("core-mine", "fanout"),
    "delete the exchange for requests": lambda channel, pool: channel.exchange_delete(pool.names.request_exchange),
    "bind the exchange for requests to another": lambda channel, pool: channel.exchange_bind(
        pool.names.request_exchange, pool.names.activity_exchange
    ),
    "send as another user": lambda channel, pool: channel.basic_publish(
        "", "nowhere", b"", pika.BasicProperties(user_id="osrdyne-admin")
    ),
}
#: What is tried over HTTP: gives the status code.
HTTP: dict[str, Callable[[Management, Pool], int]] = {
    "look at its virtual host through the management API": lambda api, pool: code(
        lambda: api.get("queues", pool.vhost)
    ),
    "see other virtual hosts there": lambda api, pool: code(lambda: others(api, pool)),
    "see the broker's nodes there": lambda api, _: code(lambda: api.get("nodes")),
    "see users there": lambda api, _: code(lambda: api.get("users")),
    "change a policy through the management API": lambda api, pool: code(lambda: CHANGES["write a policy"](api, pool)),
    "make a user through the management API": lambda api, pool: code(lambda: CHANGES["make a user"](api, pool)),
    "widen its own permissions": lambda api, pool: code(lambda: CHANGES["widen its permissions"](api, pool)),
}
OTHER_VHOST = "connect to another virtual host"
#: 403 ACCESS_REFUSED; 406 is the broker's word for a user-id that is not the connection's.
REFUSALS = (403, 406)


def allowed(pool: Pool, role: str, operation: str) -> bool:
    user = getattr(pool.users, role)
    if operation in HTTP:
        return HTTP[operation](api(pool, role), pool) not in (401, 403)
    if operation == OTHER_VHOST:
        uri = pool.broker.amqp_uri(user, pool.passwords[user], "/")
        with contextlib.suppress(AMQPConnectionError):
            pika.BlockingConnection(pika.URLParameters(uri)).close()
            return True
        return False
    with pika.BlockingConnection(pika.URLParameters(pool.uri(user))) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        try:
            AMQP[operation](channel, pool)
        except ChannelClosedByBroker as error:
            if error.reply_code not in REFUSALS:
                raise
            return False
        return True


def test_the_page_names_every_operation_that_is_tried() -> None:
    assert set(TABLE) == {*AMQP, *HTTP, OTHER_VHOST}


@pytest.mark.parametrize("role", ROLES)
def test_a_user_may_do_what_the_page_says_and_nothing_else(pool: Pool, role: str) -> None:
    # Operations that take away what later ones need come last
    operations = sorted(TABLE, key=lambda operation: (operation.startswith("delete"), operation.startswith("empty")))
    tried: dict[str, Any] = {operation: allowed(pool, role, operation) for operation in operations}

    assert tried == {operation: TABLE[operation][role] for operation in operations}


def test_a_client_that_may_declare_and_read_nothing_calls_by_direct_reply_to(pool: Pool) -> None:
    user, place = pool.users.client, f"permissions/{pool.vhost}/{pool.users.client}"
    write = pool.broker.management.get(*place.split("/"))["write"]
    pool.broker.management.put(*place.split("/"), body={"configure": "^$", "write": write, "read": "^$"})
    with pika.BlockingConnection(pika.URLParameters(pool.uri(user))) as connection:
        channel = connection.channel()
        replies: list[bytes] = []
        channel.basic_consume("amq.rabbitmq.reply-to", lambda *got: replies.append(got[3]), auto_ack=True)
        properties = pika.BasicProperties(reply_to="amq.rabbitmq.reply-to")
        channel.basic_publish(pool.names.request_exchange, "direct", b"", properties)
        with pika.BlockingConnection(pika.URLParameters(pool.uri(pool.users.daemon))) as answering:
            answer = answering.channel()

            def answered() -> bool:
                _, request, _ = answer.basic_get(pool.names.orphan_queue, auto_ack=True)
                if request is not None:
                    answer.basic_publish("", request.reply_to, b"answer")
                return request is not None

            until(answered)
        until(lambda: connection.process_data_events(0.1) or replies)
    assert replies == [b"answer"]
