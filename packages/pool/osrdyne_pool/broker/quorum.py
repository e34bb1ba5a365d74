"""The states of a quorum queue's members, and when they prove that the broker lost the queue. Pure.

RabbitMQ writes its register of quorum queues late (`ra_directory.erl`: `auto_save`): after a second on a quiet node,
after three at most. A broker that is killed before starts such a queue from scratch: with 4.0, a member with an empty
log in term 0, which waits for an election that never begins (`ra_server_proc.erl`: a new member waits for an explicit
trigger). All messages of the queue are gone, no later start of the broker brings it back, and every publish to it
waits.

Newer brokers begin that election themselves: the queue comes back empty, and works.
docs/reference/rabbitmq-lost-queues.md has the measurements.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

#: Raft state of a member that follows, or waits for a leader.
FOLLOWER: Final = "follower"


@dataclass(frozen=True, slots=True)
class Member:
    """One member of a quorum queue, as its node says. `term` and `last_index` are None where the node cannot say."""

    node: str
    #: `leader`, `follower`, `candidate`, ...; `noproc`, `nodedown` or an error where there is no member.
    state: str
    term: int | None
    #: Index of the last entry of its log; a leader's first own entry has 1.
    last_index: int | None


def read(answer: Iterable[Mapping[str, Any]]) -> tuple[Member, ...]:
    """Read what `GET /api/queues/quorum/VHOST/QUEUE/status` answered. Raises TypeError, KeyError, AttributeError.

    RabbitMQ 4.0 leaves figures out where a node has no member, as while that node starts.
    """
    return tuple(
        Member(
            str(member["Node Name"]),
            str(member["Raft State"]),
            _number(member.get("Term")),
            _number(member.get("Last Log Index")),
        )
        for member in answer
    )


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def never_led(members: Sequence[Member]) -> bool:
    """Return whether no member has ever had a leader or an entry in its log.

    That is so for some milliseconds while a queue is declared, and for ever of a queue that the broker lost. A queue
    that is slow, or that has lost its leader, has had one: its term and its log are not empty. A member whose node is
    away proves nothing.
    """
    return bool(members) and all(
        member.state == FOLLOWER and member.term == 0 and member.last_index == 0 for member in members
    )
