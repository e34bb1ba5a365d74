"""The one table of names: exchanges and queues of a pool, reply queues, its database, and names for engines.

No other module spells a name out. docs/reference/protocol.md has the rules.
"""

from __future__ import annotations

import base64
import re
import secrets
from dataclasses import dataclass
from typing import TypeGuard

from osrdyne_protocol.errors import InvalidPoolName
from osrdyne_protocol.keys import SHORT_STRING_BYTES, digest, name_part

#: The instance of a deployment that has no other on the same engine, broker or database server.
DEFAULT_INSTANCE = "default"
#: Longest name of a role or database, in bytes: PostgreSQL cuts off what is longer (NAMEDATALEN).
DATABASE_NAME_BYTES = 63

#: Longest pool name, in bytes: that of a DNS label, so that a pool can name a Kubernetes object.
POOL_NAME_BYTES = 63

_POOL_NAME = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?", re.ASCII)

#: Names that `reply_queue` makes, and what the broker makes of direct reply-to: an Erlang process, and a random key.
_REPLY_QUEUE = re.compile(r"reply-.+-[0-9a-f]{32}")
_DIRECT_REPLY_TO = re.compile(r"amq\.rabbitmq\.reply-to\.([A-Za-z0-9+/]+={0,2})\.[A-Za-z0-9+/]{22}==")
_ERLANG_PROCESS = re.compile(rb"\x83X(?:w|v\0)(.)(reply@[0-9]{1,10}).{12}", re.DOTALL)


def check_pool_name(pool: object) -> str:
    """Return `pool` when it is a pool name; raise `InvalidPoolName` with the reason when it is not.

    A name with `-req-` inside or `-req` at its end is refused, because names of one pool would then fall
    into the patterns of another. `reply` at the beginning is refused, because request queues could look like reply
    queues then.
    """
    if not isinstance(pool, str) or not _POOL_NAME.fullmatch(pool):
        raise InvalidPoolName(
            f"pool name {pool!r}: use lower-case letters, digits and inner hyphens, for example 'core'"
        )
    if len(pool) > POOL_NAME_BYTES:
        raise InvalidPoolName(f"pool name {pool!r} is {len(pool)} bytes long; at most {POOL_NAME_BYTES}")
    if "-req-" in pool or pool.endswith("-req"):
        raise InvalidPoolName(f"pool name {pool!r}: '-req' inside it would collide with another pool's queues")
    if pool == "reply" or pool.startswith("reply-"):
        raise InvalidPoolName(
            f"pool name {pool!r}: with 'reply' at its beginning its queues could look like reply queues"
        )
    return pool


@dataclass(frozen=True, slots=True)
class PoolNames:
    """The names of one pool's broker objects. Raises `InvalidPoolName` for an invalid pool name."""

    pool: str

    def __post_init__(self) -> None:
        check_pool_name(self.pool)

    @property
    def request_exchange(self) -> str:
        return f"{self.pool}-req-xchg"

    @property
    def orphan_exchange(self) -> str:
        return f"{self.pool}-orphan-xchg"

    @property
    def dead_letter_exchange(self) -> str:
        return f"{self.pool}-dl-xchg"

    @property
    def parked_exchange(self) -> str:
        return f"{self.pool}-parked-xchg"

    @property
    def activity_exchange(self) -> str:
        return f"{self.pool}-activity-xchg"

    @property
    def orphan_queue(self) -> str:
        return f"{self.pool}-orphan"

    @property
    def dead_letter_queue(self) -> str:
        return f"{self.pool}-dl"

    @property
    def activity_queue(self) -> str:
        return f"{self.pool}-activity"

    @property
    def poison_queue(self) -> str:
        return f"{self.pool}-poison"

    @property
    def unanswered_queue(self) -> str:
        return f"{self.pool}-unanswered"

    @property
    def waiting_queue(self) -> str:
        return f"{self.pool}-waiting"

    @property
    def parked_queue(self) -> str:
        return f"{self.pool}-parked"

    @property
    def events_stream(self) -> str:
        return f"{self.pool}-events"

    @property
    def leader_queue(self) -> str:
        return f"{self.pool}-leader"

    @property
    def poison_lock_queue(self) -> str:
        return f"{self.pool}-poison-lock"

    @property
    def request_queue_prefix(self) -> str:
        return f"{self.pool}-req-"

    @property
    def counted(self) -> tuple[str, ...]:
        """The queues whose messages wait for the daemon or for a person."""
        kept = (self.poison_queue, self.unanswered_queue, self.waiting_queue, self.parked_queue)
        return (self.orphan_queue, self.dead_letter_queue, *kept)

    def request_queue(self, key: str) -> str:
        """Return the name of the request queue of `key`; two keys never share one."""
        prefix = self.request_queue_prefix
        return prefix + name_part(key, SHORT_STRING_BYTES - len(prefix))

    def owns_queue(self, queue: str) -> bool:
        """Return whether a queue belongs to this pool."""
        static = (
            *self.counted,
            self.activity_queue,
            self.events_stream,
            self.leader_queue,
            self.poison_lock_queue,
        )
        return queue in static or queue.startswith(self.request_queue_prefix)


def reply_queue(user: str) -> str:
    """Return a new reply queue name for a broker user: `reply-{user}-` and 128 random bits as hexadecimal."""
    return f"reply-{user}-{secrets.token_hex(16)}"


def is_reply_address(address: str | bytes | None) -> TypeGuard[str]:
    """Return whether a reply may go to this `reply-to`; every program that sends replies has to ask.

    A program that sends replies may write into every queue of its virtual host, and `reply-to` comes from a client. So
    a reply goes to a reply queue or to direct reply-to, and nowhere else: no object of any pool has such a name. An
    address of direct reply-to must have the broker's form, because a broken one can close the connection of the program
    that replies (docs/reference/rabbitmq-facts.md#addresses-of-direct-reply-to).
    """
    if not isinstance(address, str):
        return False  # None, or not UTF-8
    if _REPLY_QUEUE.fullmatch(address):
        return True
    direct = _DIRECT_REPLY_TO.fullmatch(address)
    if direct is None or len(direct[1]) % 4:
        return False
    process = _ERLANG_PROCESS.fullmatch(base64.b64decode(direct[1]))
    return process is not None and process[1][0] == len(process[2])


def instance_tail(instance: str) -> str:
    """Return an instance as the end of a name, of which no two are alike; the instance `default` is left out."""
    if instance == DEFAULT_INSTANCE:
        return ""
    if re.fullmatch(r"[a-z0-9_-]{1,48}", instance):
        return f".{instance}"
    readable = re.sub(r"[^a-z0-9_-]+", "-", instance.lower())[:32].strip("-")
    return f".{readable}~{digest(instance)[:12]}"


@dataclass(frozen=True, slots=True)
class DatabaseNames:
    """The names that the jobs of a pool have on a PostgreSQL server."""

    #: The database, and the role of clients, workers and redo, which may read and write rows.
    database: str
    #: The role that owns the database, and makes and alters the tables.
    owner: str

    @classmethod
    def of(cls, pool: str, instance: str = DEFAULT_INSTANCE) -> DatabaseNames:
        """Return `{pool}-jobs.{instance}` and `{pool}-jobs-owner.{instance}`, as broker users are named.

        A server may hold several instances, and no two share a name. Raises InvalidPoolName.
        """
        check_pool_name(pool)
        return cls(*(_database_name(pool, role, instance) for role in ("jobs", "jobs-owner")))


def _database_name(pool: str, role: str, instance: str) -> str:
    whole = f"{pool}-{role}{instance_tail(instance)}"
    if len(whole) <= DATABASE_NAME_BYTES:
        return whole
    # In no other name does a "~" come before any ".".
    return f"{pool[:24]}-{role}~{digest(pool, instance)[:20]}"


def engine_name(pool: str, instance: str, key: str) -> str:
    """Return the name that a worker group has on an engine (unit, container, Deployment, directory).

    Lower-case letters, digits and hyphens, at most 63 bytes, the limit of a DNS label and of a Kubernetes label value:
    a readable part of pool and key, and 128 bits of a hash of pool, instance and key. Clients choose keys, and cannot
    find two of one name.
    """
    readable = re.sub(r"[^a-z0-9]+", "-", key.lower()).strip("-")[:16].strip("-")
    head = f"{pool[:13].strip('-')}-{readable}" if readable else pool[:13].strip("-")
    return f"{head}-{digest(pool, instance, key)[:32]}"
