"""Keeps a pool's events from where they should go, each way for the length of a block.

An open channel does not notice all of this: a right that it has used before is remembered for a while, and a stream
that it has published to before is found. A new one notices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from osrdyne_pool.topology import topology
from testbed.pool import Pool

#: Gives a stream a name that the broker's coordinator of streams does not know, as it knows none for some seconds after
#: a broker was killed; and the right one again. A stream without its name cannot be deleted.
_RENAME = """
rabbit_amqqueue:update(rabbit_misc:r(<<"{vhost}">>, queue, <<"{queue}">>), fun(Queue) ->
  State = amqqueue:get_type_state(Queue),
  Name = maps:get(name, State),
  amqqueue:set_type_state(Queue, State#{{name => {name}}})
end).
"""


@contextmanager
def stream_away(pool: Pool) -> Iterator[None]:
    """The broker ends the connection of each program that publishes to the stream (506)."""
    _rename(pool, '"lost-" ++ Name')
    try:
        yield
    finally:
        _rename(pool, 'lists:nthtail(length("lost-"), Name)')


@contextmanager
def exchange_deleted(pool: Pool) -> Iterator[None]:
    """An event has nowhere to be published to (404)."""
    pool.broker.management.delete("exchanges", pool.vhost, pool.names.activity_exchange)
    try:
        yield
    finally:
        pool.restore()


@contextmanager
def queue_deleted(pool: Pool) -> Iterator[None]:
    """The daemon has nothing to consume events from (404)."""
    pool.broker.management.delete("queues", pool.vhost, pool.names.activity_queue)
    try:
        yield
    finally:
        pool.restore()


@contextmanager
def rights_revoked(pool: Pool) -> Iterator[None]:
    """Neither daemon nor workers may publish events, and the daemon may not consume them (403)."""
    names = pool.names
    for permission in topology(pool.settings, pool.users).permissions:
        if permission.user in (pool.users.worker, pool.users.daemon):
            rights = {
                "configure": permission.configure,
                "write": f"^(?!{names.activity_exchange}$)(?:{permission.write})",
                "read": f"^(?!{names.activity_queue}$)(?:{permission.read})",
            }
            pool.broker.management.put("permissions", pool.vhost, permission.user, body=rights)
    try:
        yield
    finally:
        pool.restore()


#: What keeps events from workers to the broker, and the word that the broker's refusal has.
REFUSALS: dict[str, tuple[Callable[[Pool], AbstractContextManager[None]], str]] = {
    "the stream cannot be reached": (stream_away, "506"),
    "the exchange is deleted": (exchange_deleted, "NOT_FOUND"),
    "the rights are revoked": (rights_revoked, "ACCESS_REFUSED"),
}


def _rename(pool: Pool, name: str) -> None:
    queue = pool.names.events_stream
    pool.broker.rabbitmqctl("eval", _RENAME.format(vhost=pool.vhost, queue=queue, name=name))
