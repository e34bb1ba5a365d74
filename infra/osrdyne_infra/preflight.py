"""What must hold before anything is previewed or changed. Pure.

The linter judges each pool as it is declared, and as it will be on the broker together with what others put there. A
queue or exchange that differs in what a broker cannot change must be replaced: that is refused while messages would
go with it. A queue that the broker lost is refused too, unless the stack may declare it again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from osrdyne_infra.broker.live import Live
from osrdyne_infra.configuration import StackSettings
from osrdyne_infra.errors import DeploymentRefused
from osrdyne_pool import limits
from osrdyne_pool.broker import lost
from osrdyne_pool.drift import concerning, drift, request_queues
from osrdyne_pool.lint import Finding, lint
from osrdyne_pool.topology import Exchange, Queue, Topology, topology

#: The rule of the linter that another pool of the virtual host breaks, which may be about to go.
NEIGHBOUR = "neighbour"


def topologies(settings: StackSettings) -> tuple[Topology, ...]:
    """Return what is declared for each pool, in the order of the configuration."""
    return tuple(topology(pool) for pool in limits.sharing(settings.pools))


def check(settings: StackSettings, declared: tuple[Topology, ...], live: Live) -> None:
    """Raise Refused with everything that is wrong."""
    problems = [
        *_judge(declared, live.topology),
        *_losses(settings, declared, live),
        *_lost(settings, declared, live),
    ]
    if problems:
        raise DeploymentRefused(
            "\n".join(["the stack is not applied:", *(f"- {problem}" for problem in dict.fromkeys(problems))])
        )


def warnings(settings: StackSettings, declared: tuple[Topology, ...], live: Live) -> list[str]:
    """Return what is wrong with the broker and keeps nothing from being applied."""
    login = live.topology.default_login
    found = [f"on the broker at {settings.broker.management}, {login}"] if login else []
    # A pool that this stack does not have: of others, or of this stack until it is removed now.
    return found + [_sentence(finding) for finding in _judged(declared, live.topology) if finding.rule == NEIGHBOUR]


def replaced(declared: Topology, live: Live) -> set[str]:
    """Return the queues and exchanges of a pool that the broker has otherwise, so that they must be replaced."""
    found: tuple[Exchange | Queue, ...] = (*live.topology.exchanges, *live.topology.queues)
    there = {item.name: item for item in found}
    wanted: tuple[Exchange | Queue, ...] = (*declared.exchanges, *declared.queues)
    return {item.name for item in wanted if item.name in there and there[item.name] != item}


def _judge(declared: tuple[Topology, ...], live: Topology) -> Iterator[str]:
    return (_sentence(finding) for finding in _judged(declared, live) if finding.rule != NEIGHBOUR)


def _judged(declared: tuple[Topology, ...], live: Topology) -> Iterator[Finding]:
    after = _together(declared, live)
    for expected in declared:
        dynamic = [queue.name for queue in request_queues(expected.pool, live)]
        yield from (*lint(expected), *drift(expected, after), *lint(concerning(expected, after), dynamic))


def _together(declared: tuple[Topology, ...], live: Topology) -> Topology:
    """What the vhost will hold: all that is declared, and what else is there."""
    ours = Topology(
        tuple(exchange for each in declared for exchange in each.exchanges),
        tuple(queue for each in declared for queue in each.queues),
        tuple(binding for each in declared for binding in each.bindings),
        tuple(policy for each in declared for policy in each.policies),
    )
    exchanges, queues, policies = (
        {thing.name for thing in kind} for kind in (ours.exchanges, ours.queues, ours.policies)
    )
    return replace(
        ours,
        exchanges=(*ours.exchanges, *(exchange for exchange in live.exchanges if exchange.name not in exchanges)),
        queues=(*ours.queues, *(queue for queue in live.queues if queue.name not in queues)),
        bindings=tuple(dict.fromkeys((*ours.bindings, *live.bindings))),
        policies=(*ours.policies, *(policy for policy in live.policies if policy.name not in policies)),
        vhost_limits=limits.largest(expected.vhost_limits for expected in declared),
        operator_policies=live.operator_policies,
    )


def _losses(settings: StackSettings, declared: tuple[Topology, ...], live: Live) -> Iterator[str]:
    for expected in declared:
        for name in sorted(replaced(expected, live)):
            count = live.messages.get(name, 0)
            if count and expected.pool not in settings.lose_messages_of:
                yield (
                    f"queue {name} must be deleted and declared again, and holds {messages(count)}; empty it, or "
                    f"say in osrdyne:lose_messages_of that those of pool {expected.pool} may go"
                )


def _lost(settings: StackSettings, declared: tuple[Topology, ...], live: Live) -> Iterator[str]:
    for name in sorted(live.lost) if not settings.mend_lost_queues else ():
        yield f"queue {name}: {lost.problem(settings.vhost, name)}"
    for expected in declared:
        for name in lost.lost_streams(expected, live.topology):
            yield f"queue {name}: {lost.stream_problem(settings.vhost, name)}"


def messages(count: int) -> str:
    """Return a number of messages in words."""
    return "1 message" if count == 1 else f"{count} messages"


def _sentence(finding: Finding) -> str:
    return f"{finding.object}: {finding.problem} ({finding.rule})"
