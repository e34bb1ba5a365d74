"""Each broker user can do what its role must, and is refused the rest: the table of docs/reference/permissions.md."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker

from osrdyne_pool.broker.management import ManagementRefused
from osrdyne_pool.topology import request_queue_arguments
from testbed.management import Management
from testbed.pool import Pool
from tests.conftest import Vhost

# One pool serves the whole module.
pytestmark = pytest.mark.xdist_group("permissions")

#: What a user tries over AMQP. Raises ChannelClosedByBroker with 403 when the broker refuses.
Action = Callable[[BlockingChannel, Pool], Any]

QUORUM = {"x-queue-type": "quorum"}


@pytest.fixture(scope="module")
def pool(module_vhost: Vhost) -> Iterator[Pool]:
    """A pool with one request queue, that of the key 42, which its daemon made."""
    pool = Pool.on(module_vhost.broker, module_vhost.name)
    with pika.BlockingConnection(pika.URLParameters(pool.uri(pool.users.daemon))) as connection:
        make_request_queue(connection.channel(), pool, "42")
    yield pool
    pool.remove_users()


def make_request_queue(channel: BlockingChannel, pool: Pool, key: str) -> str:
    queue = pool.names.request_queue(key)
    channel.queue_declare(queue, durable=True, arguments=request_queue_arguments(key))
    channel.queue_bind(queue, pool.names.request_exchange, key)
    return queue


def allowed(pool: Pool, role: str, action: Action) -> bool:
    uri = pool.uri(getattr(pool.users, role))
    with pika.BlockingConnection(pika.URLParameters(uri)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        try:
            action(channel, pool)
        except ChannelClosedByBroker as error:
            if error.reply_code != 403:
                raise
            return False
        return True


def publish(exchange: Callable[[Pool], str], routing_key: str = "42") -> Action:
    return lambda channel, pool: channel.basic_publish(exchange(pool), routing_key, b"")


def consume(queue: Callable[[Pool], str], arguments: dict[str, Any] | None = None) -> Action:
    def act(channel: BlockingChannel, pool: Pool) -> None:
        channel.basic_qos(prefetch_count=1)
        channel.basic_consume(queue(pool), lambda *_: None, arguments=arguments)

    return act


def declare(queue: Callable[[Pool], str], **options: Any) -> Action:
    return lambda channel, pool: channel.queue_declare(queue(pool), **{"durable": True, **options})


def serve_a_key(channel: BlockingChannel, pool: Pool) -> None:
    queue = make_request_queue(channel, pool, "a key of its own")
    channel.queue_declare(queue, passive=True)
    channel.queue_unbind(queue, pool.names.request_exchange, "a key of its own")
    channel.queue_delete(queue)


def have_a_reply_queue(channel: BlockingChannel, pool: Pool) -> None:
    queue = f"reply-{pool.users.client}-{secrets.token_hex(16)}"
    channel.queue_declare(queue, durable=True, arguments={"x-expires": 600_000})
    channel.basic_consume(queue, lambda *_: None)
    channel.queue_delete(queue)


def listen_to_activity(channel: BlockingChannel, pool: Pool) -> None:
    queue = f"reply-{pool.users.client}-{secrets.token_hex(16)}"
    channel.queue_declare(queue, durable=True, arguments={"x-expires": 60_000})
    channel.queue_bind(queue, activity_exchange(pool))


def ask_with_direct_reply_to(channel: BlockingChannel, pool: Pool) -> None:
    channel.basic_consume("amq.rabbitmq.reply-to", lambda *_: None, auto_ack=True)
    properties = pika.BasicProperties(reply_to="amq.rabbitmq.reply-to", correlation_id="1")
    channel.basic_publish(pool.names.request_exchange, "42", b"", properties, mandatory=True)


def request_queue(pool: Pool) -> str:
    return pool.names.request_queue("42")


def default_exchange(_: Pool) -> str:
    return ""


def request_exchange(pool: Pool) -> str:
    return pool.names.request_exchange


def activity_exchange(pool: Pool) -> str:
    return pool.names.activity_exchange


MUST: list[tuple[str, str, Action]] = [
    ("daemon", "make, bind, look at, unbind and delete a request queue", serve_a_key),
    ("daemon", "hold the lock", declare(lambda pool: pool.names.leader_queue, durable=False, exclusive=True)),
    ("daemon", "take back requests whose workers cannot be started", consume(request_queue)),
    ("daemon", "consume orphans", consume(lambda pool: pool.names.orphan_queue)),
    ("daemon", "consume dead letters", consume(lambda pool: pool.names.dead_letter_queue)),
    ("daemon", "consume activity", consume(lambda pool: pool.names.activity_queue)),
    ("daemon", "forward", publish(request_exchange)),
    ("daemon", "put an orphan back", publish(lambda pool: pool.names.orphan_exchange)),
    ("daemon", "put a dead letter back", publish(lambda pool: pool.names.dead_letter_exchange)),
    ("daemon", "reply and keep", publish(default_exchange, "core-poison")),
    ("daemon", "report what it did", publish(activity_exchange)),
    ("client", "ask", publish(request_exchange)),
    ("client", "ask with direct reply-to", ask_with_direct_reply_to),
    ("client", "have a reply queue", have_a_reply_queue),
    ("worker", "take requests", consume(request_queue)),
    ("worker", "reply", publish(default_exchange, "reply-unread")),
    ("worker", "report activity", publish(activity_exchange)),
    ("monitor", "read the events", consume(lambda pool: pool.names.events_stream, {"x-stream-offset": "first"})),
]

MUST_NOT: list[tuple[str, str, Action]] = [
    ("daemon", "delete the request exchange", lambda channel, pool: channel.exchange_delete(request_exchange(pool))),
    ("daemon", "declare an exchange", lambda channel, pool: channel.exchange_declare("core-req-xchg", "fanout")),
    ("daemon", "declare another queue", declare(lambda _: "mine", arguments=QUORUM)),
    ("daemon", "delete the orphan queue", lambda channel, pool: channel.queue_delete(pool.names.orphan_queue)),
    (
        "daemon",
        "bind a static queue",
        lambda channel, pool: channel.queue_bind(pool.names.orphan_queue, activity_exchange(pool)),
    ),
    ("daemon", "take from the poison inventory", consume(lambda pool: pool.names.poison_queue)),
    ("daemon", "read a reply queue", consume(lambda pool: f"reply-{pool.users.client}-{'0' * 32}")),
    ("client", "write to queues through the default exchange", publish(default_exchange, "core-req-42")),
    ("client", "report activity", publish(activity_exchange)),
    ("client", "publish dead letters", publish(lambda pool: pool.names.dead_letter_exchange)),
    ("client", "take requests", consume(request_queue)),
    ("client", "read the events", consume(lambda pool: pool.names.events_stream)),
    ("client", "declare another's reply queue", declare(lambda _: f"reply-other-{'0' * 32}")),
    ("client", "declare a request queue", declare(lambda _: "core-req-43", arguments=QUORUM)),
    ("client", "delete a request queue", lambda channel, pool: channel.queue_delete(request_queue(pool))),
    ("client", "have the activity sent to its reply queue", listen_to_activity),
    ("worker", "ask", publish(request_exchange)),
    ("worker", "publish orphans", publish(lambda pool: pool.names.orphan_exchange)),
    ("worker", "take orphans", consume(lambda pool: pool.names.orphan_queue)),
    ("worker", "read replies", consume(lambda pool: f"reply-{pool.users.client}-{'0' * 32}")),
    ("worker", "delete its queue", lambda channel, pool: channel.queue_delete(request_queue(pool))),
    ("worker", "declare a queue", declare(lambda _: "core-req-43", arguments=QUORUM)),
    ("worker", "take the lock", declare(lambda pool: pool.names.leader_queue, durable=False, exclusive=True)),
    ("monitor", "take requests", consume(request_queue)),
    ("monitor", "take from the poison inventory", consume(lambda pool: pool.names.poison_queue)),
    ("monitor", "empty a queue", lambda channel, pool: channel.queue_purge(pool.names.poison_queue)),
    ("monitor", "empty the events stream", lambda channel, pool: channel.queue_delete(pool.names.events_stream)),
    ("monitor", "ask", publish(request_exchange)),
    ("monitor", "write to queues", publish(default_exchange, "core-poison")),
]


@pytest.mark.parametrize(
    ("role", "action"), [(role, action) for role, _, action in MUST], ids=[f"{case[0]} can {case[1]}" for case in MUST]
)
def test_a_user_can_do_what_its_role_must(pool: Pool, role: str, action: Action) -> None:
    assert allowed(pool, role, action)


@pytest.mark.parametrize(
    ("role", "action"),
    [(role, action) for role, _, action in MUST_NOT],
    ids=[f"{case[0]} cannot {case[1]}" for case in MUST_NOT],
)
def test_a_user_cannot_do_what_its_role_must_not(pool: Pool, role: str, action: Action) -> None:
    assert not allowed(pool, role, action)


# --- the management API -----------------------------------------------------------------------------------------------


def api(pool: Pool, role: str) -> Management:
    user = getattr(pool.users, role)
    return Management(pool.broker.management_url, user, pool.passwords[user])


def code(call: Callable[[], Any]) -> int:
    """HTTP status of a call."""
    try:
        call()
    except ManagementRefused as error:
        return error.status
    return 200


READS = ("exchanges", "queues", "bindings", "policies")


@pytest.mark.parametrize("what", READS)
@pytest.mark.parametrize("role", ["daemon", "monitor"])
def test_daemon_and_monitor_list_the_objects_of_their_vhost(pool: Pool, role: str, what: str) -> None:
    assert api(pool, role).get(what, pool.vhost)


@pytest.mark.parametrize("role", ["daemon", "monitor"])
def test_daemon_and_monitor_see_what_is_in_a_queue(pool: Pool, role: str) -> None:
    found = api(pool, role).queue(pool.vhost, request_queue(pool))

    assert found is not None
    assert {"messages_ready", "messages_unacknowledged"} <= found.keys()


@pytest.mark.parametrize("role", ["client", "worker"])
def test_client_and_worker_have_no_management_api(pool: Pool, role: str) -> None:
    assert code(lambda: api(pool, role).get("queues", pool.vhost)) == 401


def test_the_daemon_does_not_see_other_vhosts(pool: Pool) -> None:
    assert [vhost["name"] for vhost in api(pool, "daemon").get("vhosts")] == [pool.vhost]
    assert code(lambda: api(pool, "daemon").get("queues", "/")) in (401, 404)


EMPTY = "empty a request queue"
CHANGES: dict[str, Callable[[Management, Pool], Any]] = {
    "write a policy": lambda api, pool: api.put(
        "policies", pool.vhost, "mine", body={"pattern": "^core", "definition": {"max-length": 1}}
    ),
    "delete a policy": lambda api, pool: api.delete("policies", pool.vhost, pool.names.request_exchange),
    "make a user": lambda api, pool: api.put("users", "mine", body={"password_hash": "", "tags": "administrator"}),
    "list users": lambda api, pool: api.get("users"),
    "widen its permissions": lambda api, pool: api.put(
        "permissions", pool.vhost, pool.users.daemon, body={"configure": ".*", "write": ".*", "read": ".*"}
    ),
    "delete the vhost": lambda api, pool: api.delete("vhosts", pool.vhost),
    "delete the request exchange": lambda api, pool: api.delete("exchanges", pool.vhost, request_exchange(pool)),
    # Who may take requests may do that: the daemon may.
    EMPTY: lambda api, pool: api.delete("queues", pool.vhost, request_queue(pool), "contents"),
}


@pytest.mark.parametrize(
    ("role", "change"),
    [(role, change) for role in ("daemon", "monitor") for change in CHANGES if (role, change) != ("daemon", EMPTY)],
)
def test_daemon_and_monitor_change_nothing_through_the_management_api(pool: Pool, role: str, change: str) -> None:
    assert code(lambda: CHANGES[change](api(pool, role), pool)) in (401, 403)
    assert api(pool, role).get("policies", pool.vhost)
