"""Queues that the broker lost when it was killed: what proves it, what it means, and the commands that mend it. Pure.

A quorum queue is lost when none of its members ever had a leader (`quorum.never_led`), in two looks
`LOOK_AGAIN_SECONDS` apart: while a queue is declared, that is true for some milliseconds.

A stream is lost when the broker was killed within half a second of the declaration of its first stream. RabbitMQ 4.0
then keeps its bindings and lists no such queue, and refuses to declare or delete it. RabbitMQ 4.3 lists it as if it
worked; what its management API says of it does not prove a loss. One command on the broker's host brings it back on
both, with what it held. Measured on 4.0.5 and 4.3.6, one node each (docs/reference/rabbitmq-lost-queues.md#streams).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from osrdyne_pool.topology import Topology

#: Seconds between two looks that prove a loss, at least.
LOOK_AGAIN_SECONDS: Final = 3.0

_ANEW: Final = (
    "`pulumi config set mend_lost_queues true` and `pulumi up`, or "
    "`ansible-playbook playbooks/dev.yml -e osrdyne_mend_lost_queues=true`"
)


@dataclass(frozen=True, slots=True)
class Evidence:
    """Results of all checks: when each suspect was first and last seen as never led, in monotonic seconds."""

    seen: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    @classmethod
    def known(cls, lost: Iterable[str], now: float) -> Evidence:
        """Return the evidence for queues that are known to be lost already."""
        return cls(dict.fromkeys(lost, (now - LOOK_AGAIN_SECONDS, now)))

    def after(self, looks: Mapping[str, bool], now: float) -> Evidence:
        """Return the evidence after another look: for each queue, whether it never had a leader.

        A queue that could not be checked is left out; its earlier evidence stays.
        """
        seen = {name: times for name, times in self.seen.items() if name not in looks}
        for name, never_led in looks.items():
            if never_led:
                seen[name] = (self.seen.get(name, (now, now))[0], now)
        return Evidence(seen)

    @property
    def suspects(self) -> frozenset[str]:
        """Queues that are lost, or of which another look will say whether they are."""
        return frozenset(self.seen)

    @property
    def lost(self) -> frozenset[str]:
        """Queues that are proved to be lost."""
        return frozenset(name for name, (first, last) in self.seen.items() if last - first >= LOOK_AGAIN_SECONDS)


def static_quorum_queues(declared: Topology) -> tuple[str, ...]:
    """Return the names of the static queues that can be asked for their members."""
    return tuple(queue.name for queue in declared.queues if queue.type == "quorum")


def lost_streams(declared: Topology, live: Topology) -> tuple[str, ...]:
    """Return the declared streams that a broker does not list, and whose bindings it has: 4.0 lost them.

    For a moment after its start, a broker shows every stream so. A stream that was deleted has no binding left.
    """
    listed, bound = {queue.name for queue in live.queues}, set(live.bindings)
    return tuple(
        queue.name
        for queue in declared.queues
        if queue.type == "stream"
        and queue.name not in listed
        and any(binding in bound for binding in declared.bindings if binding.queue == queue.name)
    )


def problem(vhost: str, queue: str) -> str:
    """Return the text about a lost static quorum queue, with what to do."""
    return (
        "the broker lost it when it was killed: it holds nothing, and a publish to it is refused after a minute; on "
        f"the broker's host run `{start_election(vhost, queue)}`, which keeps the queue and its bindings, or have it "
        f"deleted and declared again: {_ANEW}"
    )


def request_queue_problem(vhost: str, queue: str) -> str:
    """Return the text about a lost request queue, with what to do."""
    return (
        "the broker lost it when it was killed: it holds nothing, and a publish to it is refused after a minute; the "
        "daemon that leads deletes it and declares it again by itself; where none leads, run on the broker's host "
        f"`{start_election(vhost, queue)}`"
    )


def stream_problem(vhost: str, stream: str) -> str:
    """Return the text about a lost stream, with what to do."""
    return (
        "the broker has its bindings and does not list it: it has just started, and will have it in a moment, or it "
        f"lost it when it was killed; then run on the broker's host `{start_stream(vhost, stream)}`, which brings it "
        "back with what it held"
    )


def problems(declared: Topology, vhost: str) -> dict[str, str]:
    """Return what to say of each static queue that is lost, by its name."""
    return {
        queue.name: stream_problem(vhost, queue.name) if queue.type == "stream" else problem(vhost, queue.name)
        for queue in declared.queues
        if queue.type in ("quorum", "stream")
    }


def start_election(vhost: str, queue: str) -> str:
    """Return the command that has a lost quorum queue elect its leader; it keeps the queue and its bindings."""
    # The name of the process is an atom; the broker writes the vhost "/" as %2F in it (rabbit_quorum_queue.erl).
    name = _quoted(f"{'%2F' if vhost == '/' else vhost}_{queue}", "'")
    return _command(f"ra:trigger_election({{'{name}', node()}}).")


def start_stream(vhost: str, stream: str) -> str:
    """Return the command that has the broker's coordinator of streams start one that it does not know any more."""
    where, name = _quoted(vhost, '"'), _quoted(stream, '"')
    resource = f'rabbit_misc:r(<<"{where}"/utf8>>, queue, <<"{name}"/utf8>>)'
    return _command(
        f"{{ok, Q}} = rabbit_db_queue:get_durable({resource}), rabbit_stream_coordinator:new_stream(Q, node())."
    )


def _quoted(text: str, quote: str) -> str:
    """Text as it stands between quotes in Erlang."""
    return text.replace("\\", "\\\\").replace(quote, "\\" + quote)


def _command(expression: str) -> str:
    """The call of rabbitmqctl that evaluates an Erlang expression, as a shell reads it."""
    for character in ("\\", '"', "$", "`"):
        expression = expression.replace(character, "\\" + character)
    return f'rabbitmqctl eval "{expression}"'
