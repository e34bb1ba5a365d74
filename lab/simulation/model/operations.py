"""Operations on objects, as a client asks for them: declare, bind, unbind, delete, consume.

Each takes the broker's half of the channel and returns the answer, or raises `Refusal`; what takes its time, because
the broker lost the queue, returns a `Wait`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from osrdyne_amqp import QueueInfo
from simulation.model import history
from simulation.model.queue import Queue
from simulation.model.refusals import Refusal
from simulation.model.routing import REPLY_TO
from simulation.model.server_channel import ServerChannel
from simulation.model.stall import DELETION_SECONDS, UNREACHED_SECONDS, Wait

#: Arguments that must be the same when a queue is declared again.
_COMPARED = (
    "x-queue-type",
    "x-expires",
    "x-message-ttl",
    "x-dead-letter-exchange",
    "x-dead-letter-routing-key",
    "x-dead-letter-strategy",
    "x-max-length",
    "x-overflow",
    "x-delivery-limit",
    "x-consumer-timeout",
    "x-single-active-consumer",
)


def declare(
    channel: ServerChannel,
    name: str,
    passive: bool,
    durable: bool,
    exclusive: bool,
    auto_delete: bool,
    arguments: Mapping[str, Any],
) -> QueueInfo:
    connection = channel.connection
    broker = connection.broker
    if passive:
        if broker.version != "4.0" and not connection.may_any(name):
            connection.may("configure", name, "queue")
    else:
        if not name:
            if _kind(arguments, durable, exclusive, auto_delete, broker.default_queue_type) != "classic":
                raise Refusal(406, "PRECONDITION_FAILED - invalid property 'server-named' for a quorum queue")
            name = f"amq.gen-{broker.next_serial()}"
        elif name.startswith("amq."):
            raise Refusal(403, f"ACCESS_REFUSED - queue name '{name}' contains reserved prefix 'amq.*'")
        connection.may("configure", name, "queue")
    queue = broker.queues.get(name)
    if queue is None:
        if passive:
            raise _missing(name)
        queue = _make(channel, name, durable, exclusive, auto_delete, arguments)
    else:
        _check_owner(channel, queue)
        if not passive:
            _check_same(queue, durable, exclusive, auto_delete, arguments, broker.default_queue_type)
    queue.watch_unused()
    return QueueInfo(name, queue.ready_count, len(queue.consumers))


def _make(
    channel: ServerChannel,
    name: str,
    durable: bool,
    exclusive: bool,
    auto_delete: bool,
    arguments: Mapping[str, Any],
) -> Queue:
    broker = channel.connection.broker
    kind = _kind(arguments, durable, exclusive, auto_delete, broker.default_queue_type)
    if kind != "classic" and (exclusive or auto_delete or not durable):
        raise Refusal(406, f"PRECONDITION_FAILED - invalid property for a {kind} queue")
    if not durable and not exclusive and broker.version == "4.3":
        raise Refusal(541, "INTERNAL_ERROR - transient_nonexcl_queues is deprecated", ends_connection=True)
    owner = channel.connection.name if exclusive else None
    queue = Queue(broker, name, kind, durable=durable, auto_delete=auto_delete, owner=owner, arguments=dict(arguments))
    broker.add_queue(queue, by=channel.connection.name)
    return queue


def _kind(arguments: Mapping[str, Any], durable: bool, exclusive: bool, auto_delete: bool, default: str) -> str:
    kind = str(arguments.get("x-queue-type") or "")
    if kind:
        return kind
    return default if durable and not exclusive and not auto_delete else "classic"


def _check_owner(channel: ServerChannel, queue: Queue) -> None:
    if queue.owner is not None and queue.owner != channel.connection.name:
        raise Refusal(405, f"RESOURCE_LOCKED - cannot obtain exclusive access to locked queue '{queue.name}'")


def _check_same(
    queue: Queue, durable: bool, exclusive: bool, auto_delete: bool, arguments: Mapping[str, Any], default: str
) -> None:
    wanted = {**arguments, "x-queue-type": _kind(arguments, durable, exclusive, auto_delete, default)}
    there = {**queue.arguments, "x-queue-type": queue.kind}
    same = (
        durable == queue.durable
        and exclusive == (queue.owner is not None)
        and auto_delete == queue.auto_delete
        and all(wanted.get(name) == there.get(name) for name in _COMPARED)
    )
    if not same:
        raise Refusal(406, f"PRECONDITION_FAILED - inequivalent arg for queue '{queue.name}'")


def _missing(name: str) -> Refusal:
    return Refusal(404, f"NOT_FOUND - no queue '{name}' in vhost '/'")


def bind(channel: ServerChannel, name: str, exchange: str, routing_key: str) -> None:
    connection = channel.connection
    broker = connection.broker
    queue = _allowed(channel, name, exchange)
    if exchange not in broker.routing.exchanges:
        raise Refusal(404, f"NOT_FOUND - no exchange '{exchange}' in vhost '/'")
    if queue is None:
        raise _missing(name)
    if broker.routing.bind(queue, exchange, routing_key):
        broker.record(history.BOUND, connection.name, name, detail=(exchange, routing_key))


def unbind(channel: ServerChannel, name: str, exchange: str, routing_key: str) -> None:
    connection = channel.connection
    broker = connection.broker
    queue = _allowed(channel, name, exchange)
    if queue is not None and broker.routing.unbind(queue, exchange, routing_key):
        broker.record(history.UNBOUND, connection.name, name, detail=(exchange, routing_key))


def _allowed(channel: ServerChannel, name: str, exchange: str) -> Queue | None:
    connection = channel.connection
    connection.may("write", name, "queue")
    connection.may("read", exchange, "exchange")
    queue = connection.broker.queues.get(name)
    if queue is not None:
        _check_owner(channel, queue)
    return queue


def delete(channel: ServerChannel, name: str, if_unused: bool = False, if_empty: bool = False) -> int | Wait:
    connection = channel.connection
    broker = connection.broker
    connection.may("configure", name, "queue")
    queue = broker.queues.get(name)
    if queue is None:
        return 0
    _check_owner(channel, queue)
    if queue.kind == "quorum" and (if_unused or if_empty):
        raise Refusal(540, "NOT_IMPLEMENTED - cannot delete: queue.delete if-unused or if-empty", ends_connection=True)
    if queue.lost:
        return Wait(DELETION_SECONDS, partial(_deleted, queue=queue), queue, until_deleted=False)
    ready = queue.ready_count
    broker.remove_queue(queue, by=connection.name)
    return ready


def _deleted(channel: ServerChannel, queue: Queue) -> int:
    connection = channel.connection
    connection.broker.remove_queue(queue, by=connection.name)
    return 0


def consume(channel: ServerChannel, name: str, tag: str, no_ack: bool) -> str | Wait:
    connection = channel.connection
    if name == REPLY_TO:
        if not no_ack:
            raise Refusal(406, "PRECONDITION_FAILED - reply consumer cannot acknowledge")
        channel.reply_tag = tag
        return tag
    connection.may("read", name, "queue")
    queue = connection.broker.queues.get(name)
    if queue is None:
        raise _missing(name)
    _check_owner(channel, queue)
    if queue.lost:
        return Wait(UNREACHED_SECONDS, _not_consumed, queue)
    channel.consume(queue, tag, no_ack)
    return tag


def _not_consumed(channel: ServerChannel) -> str:
    raise Refusal(541, "INTERNAL_ERROR", ends_connection=True)


def cancel(channel: ServerChannel, tag: str) -> str:
    channel.cancel(tag)
    return tag


def qos(channel: ServerChannel, prefetch: int) -> None:
    channel.qos(prefetch)


def confirms(channel: ServerChannel) -> None:
    channel.turn_on_confirms()
