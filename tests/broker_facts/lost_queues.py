"""`python -m tests.broker_facts.lost_queues`: quorum queues that a killed RabbitMQ loses, on brokers of its own.

Without `--cluster` it kills a single broker: how old a queue must be to come back, what does harm and what helps, what
a lost queue does to its users, and what heals it. With `--cluster` it kills nodes of a cluster of three, takes a
majority away, and watches queues that are well for moments in which they look lost.

Exit status 0 whatever it finds. Progress goes to standard error.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Iterator
from typing import Any

from testbed.broker import DEMO_VERSION, SUITES, Broker
from testbed.broker_cluster import BrokerCluster
from tests.broker_facts import harm, kills, members
from tests.broker_facts.fates import Fate
from tests.broker_facts.kills import Round
from tests.broker_facts.members import WatchResult
from tests.broker_facts.watching import BURNERS, busy, watched

#: Ages (s) of a queue at the kill, while something else goes on.
AGES = (0.1, 0.3, 0.6, 0.9, 1.5, 2.0, 2.5, 2.9, 3.3, 4.0)
#: Connections that declare, and the pause (s) between two declares of each.
DECLARERS = ((1, 0.0), (1, 0.1), (1, 0.4), (8, 0.0), (8, 0.1), (3, 0.6))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.broker_facts.lost_queues", description=__doc__)
    parser.add_argument("--version", choices=SUITES, default=DEMO_VERSION, help="RabbitMQ")
    parser.add_argument("--cluster", action="store_true", help="three nodes instead of one")
    parser.add_argument("--kills", type=int, default=10, help="kills at random ages, with nothing else going on")
    parser.add_argument("--seed", type=int, default=0, help="decides the random ages")
    parser.add_argument("--json", action="store_true", help="the figures, for programs")
    arguments = parser.parse_args()
    sections = _cluster(arguments) if arguments.cluster else _single(arguments)
    report: dict[str, Any] = {"version": arguments.version, "nodes": 3 if arguments.cluster else 1}
    for title, found in sections:
        report[title] = [dataclasses.asdict(fate) for fate in found]
        if not arguments.json:
            print(f"\n{title}", *(f"  {line(fate)}" for fate in found), sep="\n", flush=True)
    if arguments.json:
        print(json.dumps(report, indent=2))
    return 0


def _single(arguments: argparse.Namespace) -> Iterator[tuple[str, list[Any]]]:
    """What a single broker loses."""
    with Broker(arguments.version) as broker:
        rig = kills.prepare(broker, arguments.seed)
        ages = sorted(rig.random.uniform(0.02, 1.5) for _ in range(arguments.kills))
        yield "Killed, nothing else goes on", _say(kills.kill_after(rig, "nothing", age) for age in ages)
        for load in [*kills.ACTIONS][1:]:
            yield f"Killed, meanwhile {load}", _say(kills.kill_after(rig, load, age) for age in AGES)
        among = (kills.kill_among_declares(rig, *declarer) for declarer in DECLARERS for _ in range(2))
        yield "Killed among declares", _say(among)
        yield "Killed after recreations", _say(kills.kill_after_recreations(rig) for _ in range(3))
        sorts = [(recreated, fresh) for recreated in (False, True) for fresh in (False, True)]
        thrown = (
            kills.kill_after_a_throwaway(rig, recreated=recreated, fresh=two)
            for recreated, two in sorts
            for _ in range(3)
        )
        yield "Killed after a throwaway queue was declared and deleted", _say(thrown)
        yield "Stopped", _say(kills.stop_after_a_declare(rig) for _ in range(3))
        yield "Restarts and kills, watched through the status API", _say(_watched_restarts(broker))
    with Broker(arguments.version) as broker:
        yield "A lost queue", harm.measure(broker)


def _watched_restarts(broker: Broker) -> Iterator[WatchResult]:
    queues = kills.keep(broker, 20)
    for loaded in (False, True):
        for what, end in (("stopped", broker.stop), ("killed", broker.kill)):
            with busy(BURNERS if loaded else 0), watched([broker], lambda: queues) as seen:
                end()
                broker.start()
                not_well = kills.not_well(broker, queues)
            yield WatchResult(f"{what} and started{', under load' if loaded else ''}", seen, not_well)


def _cluster(arguments: argparse.Namespace) -> Iterator[tuple[str, list[Any]]]:
    """What a cluster of three loses, and what it looks like meanwhile."""
    ages = [0.05, 0.3, 1.0, 3.5]
    with BrokerCluster(arguments.version) as cluster:
        yield "Nodes are killed right after a declare", _say(members.kill_after_a_declare(cluster, ages))
        declaring = (members.while_declared(cluster.nodes, loaded=loaded) for loaded in (False, True))
        yield "While a queue is declared", _say(declaring)
        yield "Nodes come and go", _say(members.come_and_go(cluster, loaded=False))
        yield "Nodes come and go, under load", _say(members.come_and_go(cluster, loaded=True))
        yield "A queue without a majority", _say(members.without_majority(cluster))


def _say(found: Any) -> list[Any]:
    """Gather what is found, and say it as it comes."""
    gathered = []
    for fate in found:
        print(line(fate), file=sys.stderr, flush=True)
        gathered.append(fate)
    return gathered


def line(one: object) -> str:
    """One finding in words."""
    match one:
        case Round(load, fates):
            return f"{load}: {_summary(fates)}"
        case members.KillResult(doomed, fate, shown):
            return f"{doomed} killed at {fate.age:.2f} s: {fate.fate}; {shown}"
        case WatchResult(what, seen, not_well):
            spell = seen.longest()
            looked = "never" if spell is None else f"for {spell:.3f} s at most, {len(seen.spells)} queues"
            common = sorted(seen.answers.items(), key=lambda pair: -pair[1])[:8]
            answers = ", ".join(f"{count} {answer}" for answer, count in common)
            return (
                f"{what}: looked lost {looked}; not well after: {not_well or 'none'}; {seen.samples} samples: {answers}"
            )
        case harm.Measurement(what, seconds, outcome):
            return f"{what}: {seconds:.2f} s, {outcome}"
    raise TypeError(one)


def _summary(fates: list[Fate]) -> str:
    if len(fates) == 1:
        return f"{fates[0].age:.2f} s old, {fates[0].fate}"
    sorts = sorted({fate.fate for fate in fates})
    ages = {sort: [fate.age for fate in fates if fate.fate == sort] for sort in sorts}
    return ", ".join(
        f"{len(found)} {sort} ({min(found):.2f} to {max(found):.2f} s old)" for sort, found in ages.items()
    )


if __name__ == "__main__":
    sys.exit(main())
