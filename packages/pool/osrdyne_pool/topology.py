"""The static broker objects of a pool, as values: what infrastructure code declares and the daemon expects.

Pure: `topology(settings)` says what must be there; Pulumi creates it, Ansible applies it, `lint` judges it and
`drift` compares it with a live broker. Request queues, the leader queue and reply queues are not here: the
daemon and the clients own those. Rules: RabbitMQ documentation on policies, quorum queues, dead lettering,
streams and access control; measured on RabbitMQ 4.0 and 4.3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from osrdyne_pool import limits
from osrdyne_pool.limits import Limits
from osrdyne_pool.settings import PoolSettings
from osrdyne_protocol.headers import X_OSRDYNE_KEY, text
from osrdyne_protocol.keys import SHORT_STRING_BYTES
from osrdyne_protocol.names import DEFAULT_INSTANCE, PoolNames, instance_tail

Argument = bool | int | str
ApplyTo = Literal["exchanges", "queues", "classic_queues", "quorum_queues", "streams", "all"]
QueueType = Literal["quorum", "stream", "classic"]

#: Bytes of the activity queue for each message that it may hold.
ACTIVITY_BYTES = 1_000
#: How often the daemon may fail on an orphan, and on a dead letter, before the broker moves it on. A message that the
#: broker cannot convert fails each time, and blocks its queue meanwhile. Any other fails only as the daemon crashes: an
#: orphan is then answered as a dead letter, but a dead letter is parked, hence the larger number. The broker counts on
#: in the next queue. docs/decisions/0039-what-cannot-be-delivered-is-parked.md
ORPHAN_DELIVERY_LIMIT, LETTER_DELIVERY_LIMIT = 100, 300
#: Bytes of the parking queue. Once it is full, what is to be parked stays in the dead-letter queue, in nothing's way.
PARKED_BYTES = 1_000_000_000
#: After how long a copy for which the inventory had no room is tried again.
#: docs/decisions/0041-an-inventory-in-two-rooms.md
WAITING_SECONDS = 60.0
#: Priority of this project's policies, high enough to win over a catch-all policy of priority 0.
POLICY_PRIORITY = 10


@dataclass(frozen=True, slots=True)
class Exchange:
    """A durable exchange."""

    name: str
    type: str
    arguments: Mapping[str, Argument] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Queue:
    """A durable queue. `arguments` does not repeat the queue type."""

    name: str
    type: QueueType = "quorum"
    arguments: Mapping[str, Argument] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Binding:
    """A binding of a queue to an exchange. On a live broker another exchange may be bound in place of a queue."""

    exchange: str
    #: What is bound: the name of a queue, or of what `to` says.
    queue: str
    routing_key: str = ""
    to: Literal["queue", "exchange"] = "queue"


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy: one wins for each object, that of the highest priority whose pattern matches its name."""

    name: str
    pattern: str
    apply_to: ApplyTo
    definition: Mapping[str, Argument]
    priority: int = POLICY_PRIORITY


@dataclass(frozen=True, slots=True)
class User:
    """A broker user of one role; the password is made and kept where the topology is applied."""

    name: str
    role: str
    tags: tuple[str, ...] = ()
    #: Most connections and channels, by the broker's names.
    limits: Limits = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Permission:
    """What a user may configure, write and read: regular expressions over names of exchanges and queues."""

    user: str
    configure: str
    write: str
    read: str


@dataclass(frozen=True, slots=True)
class Users:
    """Names of the broker users of a pool, one for each role; none where the name is empty."""

    client: str
    worker: str
    daemon: str
    monitor: str
    #: The person who works on the poison inventory with `osrdyne poison`.
    operator: str = ""
    #: The pipeline where it runs by itself (`osrdyne pipeline run`).
    pipeline: str = ""

    @classmethod
    def of(cls, pool: str, instance: str = DEFAULT_INSTANCE) -> Users:
        """Return the default names: `{pool}-{role}.{instance}`.

        Users belong to a broker, not to a vhost: with the instance in them, two instances never share one. The
        instance `default` is left out.
        """
        tail = instance_tail(instance)
        return cls(*(f"{pool}-{role}{tail}" for role in limits.ROLES))


@dataclass(frozen=True, slots=True)
class Topology:
    """All static objects of one pool in one vhost."""

    exchanges: tuple[Exchange, ...]
    queues: tuple[Queue, ...]
    bindings: tuple[Binding, ...]
    policies: tuple[Policy, ...]
    users: tuple[User, ...] = ()
    permissions: tuple[Permission, ...] = ()
    #: Name of the pool; empty for what a live broker lists, which may hold several.
    pool: str = ""
    #: Policies of the broker's operator, which add to all others and win over them; none is ever declared here.
    operator_policies: tuple[Policy, ...] = ()
    #: What to say about user guest, if a broker lists it and it has the password guest.
    default_login: str = ""
    #: Names of the other pools of the virtual host whose needs are in `vhost_limits`.
    neighbours: tuple[str, ...] = ()
    #: Most queues and connections of the virtual host: what the pool and its neighbours need, or what a broker has.
    vhost_limits: Limits = field(default_factory=dict)


def topology(pool: PoolSettings, users: Users | None = None) -> Topology:
    """Return the topology of a pool. `users` are the names of its broker users, `Users.of` by default."""
    names = PoolNames(pool.name)
    who = users or Users.of(pool.name, pool.instance)
    return Topology(
        exchanges=(
            Exchange(names.request_exchange, "direct"),
            Exchange(names.orphan_exchange, "fanout"),
            Exchange(names.dead_letter_exchange, "fanout"),
            Exchange(names.parked_exchange, "fanout"),
            Exchange(names.activity_exchange, "fanout"),
        ),
        queues=(
            # Without a policy, the broker's own limit would be 20, and a daemon that crashes often must not use up the
            # deliveries of what it holds (docs/reference/rabbitmq-facts.md#deliveries-that-count). A limit of a policy
            # holds.
            Queue(names.orphan_queue, arguments={"x-delivery-limit": -1}),
            Queue(names.dead_letter_queue, arguments={"x-delivery-limit": -1}),
            Queue(names.poison_queue, arguments={"x-delivery-limit": -1}),
            Queue(names.unanswered_queue, arguments={"x-delivery-limit": -1}),
            Queue(names.waiting_queue, arguments={"x-delivery-limit": -1}),
            Queue(names.parked_queue, arguments={"x-delivery-limit": -1}),
            Queue(names.activity_queue),
            Queue(names.events_stream, type="stream"),
        ),
        bindings=(
            Binding(names.orphan_exchange, names.orphan_queue),
            Binding(names.dead_letter_exchange, names.dead_letter_queue),
            Binding(names.parked_exchange, names.parked_queue),
            Binding(names.activity_exchange, names.activity_queue),
            Binding(names.activity_exchange, names.events_stream),
        ),
        policies=_policies(pool, names),
        users=_users(pool, who),
        permissions=_permissions(names, who),
        pool=pool.name,
        neighbours=tuple(pool.neighbours),
        vhost_limits=limits.of_virtual_host(pool),
    )


def _users(pool: PoolSettings, who: Users) -> tuple[User, ...]:
    tags = {
        # To list queues, exchanges, bindings and policies of its vhost; it sees no other and changes nothing.
        "daemon": ("management",),
        # With `monitoring` it would see all vhosts, all nodes, and all connections with their addresses and users.
        "monitor": ("management",),
    }
    return tuple(
        User(getattr(who, role), role, tags.get(role, ()), limits.of_user(pool.limits, role))
        for role in limits.ROLES
        if getattr(who, role)
    )


def needed_to_act(declared: Topology) -> Topology:
    """Return a pool's topology with only the objects that a daemon needs to forward and answer.

    Left out are those of events, and those that pools of earlier versions have not: the daemon then keeps all in one
    queue.
    """
    names = PoolNames(declared.pool)
    spared = (
        *(names.activity_exchange, names.activity_queue, names.events_stream),
        *(names.parked_exchange, names.parked_queue),
        *(names.unanswered_queue, names.waiting_queue),
    )
    return replace(
        declared,
        exchanges=tuple(kept for kept in declared.exchanges if kept.name not in spared),
        queues=tuple(kept for kept in declared.queues if kept.name not in spared),
        bindings=tuple(binding for binding in declared.bindings if binding.exchange not in spared),
        # A pool of an earlier version has no policy for its dead-letter queue.
        policies=tuple(policy for policy in declared.policies if policy.name not in (*spared, names.dead_letter_queue)),
        vhost_limits={},
    )


#: Keys that stand for all others when names of request queues are checked before any exist.
SAMPLE_KEYS = ("", "42", "~", "a\nb", "infra=42,timetable=24", "k" * SHORT_STRING_BYTES)


def sample_request_queues(pool: str) -> tuple[str, ...]:
    """Return names of request queues that a pool may have one day: policies must fit them too."""
    names = PoolNames(pool)
    return tuple(names.request_queue(key) for key in SAMPLE_KEYS)


def request_queue_arguments(key: str) -> dict[str, Argument]:
    """Return the arguments with which the daemon declares the request queue of a key."""
    return {"x-queue-type": "quorum", X_OSRDYNE_KEY: key}


def own_key(queue: Queue) -> str | None:
    """Return the key of a queue that is exactly what the daemon declares under its name; None for any other."""
    key = text(queue.arguments.get(X_OSRDYNE_KEY))
    if key is None or queue.type != "quorum":
        return None
    return key if PoolNames(queue.name.partition("-req-")[0]).request_queue(key) == queue.name else None


def _policies(pool: PoolSettings, names: PoolNames) -> tuple[Policy, ...]:
    dead_letters: dict[str, Argument] = {
        "dead-letter-exchange": names.dead_letter_exchange,
        # At-least-once needs reject-publish, else the broker falls back to at-most-once
        # (docs/reference/rabbitmq-facts.md#dead-letters-that-are-not-lost).
        "dead-letter-strategy": "at-least-once",
        "overflow": "reject-publish",
    }
    room: dict[str, Argument] = {"max-length": pool.poison_max_length, "max-length-bytes": pool.poison_max_bytes}
    return (
        Policy(
            names.request_exchange,
            exactly(names.request_exchange),
            "exchanges",
            {"alternate-exchange": names.orphan_exchange},
        ),
        Policy(
            f"{pool.name}-req",
            "^" + escape(names.request_queue_prefix),
            "quorum_queues",
            {
                **dead_letters,
                "delivery-limit": pool.delivery_limit,
                "message-ttl": milliseconds(pool.message_ttl),
                "consumer-timeout": milliseconds(pool.consumer_timeout),
            },
        ),
        Policy(
            names.orphan_queue,
            exactly(names.orphan_queue),
            "quorum_queues",
            {
                **dead_letters,
                "delivery-limit": ORPHAN_DELIVERY_LIMIT,
                "message-ttl": milliseconds(pool.orphan_ttl),
            },
        ),
        Policy(
            names.dead_letter_queue,
            exactly(names.dead_letter_queue),
            "quorum_queues",
            {
                **dead_letters,
                "dead-letter-exchange": names.parked_exchange,
                "delivery-limit": LETTER_DELIVERY_LIMIT,
            },
        ),
        Policy(
            names.parked_queue,
            exactly(names.parked_queue),
            "quorum_queues",
            {"max-length-bytes": PARKED_BYTES, "overflow": "reject-publish"},
        ),
        Policy(
            names.activity_queue,
            exactly(names.activity_queue),
            "quorum_queues",
            # A batch of events has up to 64,000 bytes: without a limit of bytes, the queue could fill a disk.
            {
                "max-length": pool.activity_max_length,
                "max-length-bytes": pool.activity_max_length * ACTIVITY_BYTES,
                "overflow": "drop-head",
            },
        ),
        Policy(
            names.poison_queue,
            exactly(names.poison_queue),
            "quorum_queues",
            {**room, "overflow": "reject-publish"},
        ),
        Policy(
            names.unanswered_queue,
            exactly(names.unanswered_queue),
            "quorum_queues",
            # What is dropped goes to the daemon, which counts it.
            {
                **room,
                "overflow": "drop-head",
                "dead-letter-exchange": names.dead_letter_exchange,
                "dead-letter-strategy": "at-most-once",
            },
        ),
        Policy(
            names.waiting_queue,
            exactly(names.waiting_queue),
            "quorum_queues",
            {**dead_letters, "message-ttl": milliseconds(WAITING_SECONDS)},
        ),
        Policy(
            names.events_stream,
            exactly(names.events_stream),
            "streams",
            {"max-age": f"{max(1, round(pool.events_max_age))}s", "max-length-bytes": pool.events_max_bytes},
        ),
    )


def _permissions(names: PoolNames, who: Users) -> tuple[Permission, ...]:
    pool = escape(names.pool)
    replies = f"^reply-{escape(who.client)}-[0-9a-f]{{32}}$"
    request_exchange, activity_exchange = escape(names.request_exchange), escape(names.activity_exchange)
    return (
        Permission(who.client, configure=replies, write=f"^{request_exchange}$", read=replies),
        Permission(
            who.worker,
            configure="^$",
            write=f"^({activity_exchange}|amq\\.default)$",
            read=f"^{pool}-req-(?!xchg$)",
        ),
        Permission(
            who.daemon,
            # It declares and deletes request queues, and must not be able to delete the request exchange.
            configure=f"^{pool}-(leader$|req-(?!xchg$))",
            # The prefix is that of the queues it binds and of the exchange it forwards to.
            write=f"^({pool}-(req-.*|(orphan|dl|activity)-xchg)|amq\\.default)$",
            # Binding a queue reads from the exchange; the lock is consumed, so that its deletion is noticed. Requests
            # are the workers' to read, and the daemon's where no worker can be started (decision 0063).
            read=f"^{pool}-(req-.*|orphan|dl|activity|leader)$",
        ),
        _readers(names, who.monitor),
        *((_operators(names, who.operator),) if who.operator else ()),
        *((_readers(names, who.pipeline),) if who.pipeline else ()),
    )


def _readers(names: PoolNames, user: str) -> Permission:
    """Rights to read the record of all events. A reader cannot empty a stream, but any other queue."""
    return Permission(user, configure="^$", write="^$", read=exactly(names.events_stream))


def _operators(names: PoolNames, user: str) -> Permission:
    """Rights to read and empty the poison inventory, one command at a time, to send requests again, and to report."""
    return Permission(
        user,
        configure=exactly(names.poison_lock_queue),
        write=f"^({escape(names.request_exchange)}|{escape(names.activity_exchange)})$",
        read=f"^({escape(names.poison_queue)}|{escape(names.unanswered_queue)})$",
    )


def exactly(name: str) -> str:
    """Return the anchored pattern that matches one name only."""
    return f"^{escape(name)}$"


def escape(name: str) -> str:
    """Return `name` as a literal part of a regular expression of the broker's dialect (PCRE)."""
    return "".join(character if character.isalnum() or character in "-_" else "\\" + character for character in name)


def milliseconds(seconds: float) -> int:
    """Return whole milliseconds, at least 1: what the broker takes as a time."""
    return max(1, round(seconds * 1000))
