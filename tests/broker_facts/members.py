"""Quorum queues with three members on a cluster: kills after a declare, and queues without a majority."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from pika.adapters.blocking_connection import BlockingChannel

from osrdyne_pool.broker.management import ManagementRefused
from testbed.broker import Broker
from testbed.broker_cluster import BrokerCluster
from tests.broker_facts.fates import PERSISTENT, Fate, close, declare, fates, members, open_channel
from tests.broker_facts.harm import Measurement, timed
from tests.broker_facts.kills import not_well
from tests.broker_facts.watching import BURNERS, SampleSummary, busy, watched

#: The nodes that are killed after a declare on node 0, which has the queue's leader then.
DOOMED = ([0], [1], [0, 1], [1, 2], [0, 1, 2])
#: Queues that are watched while nodes come and go.
WATCHED = 6


@dataclass(frozen=True)
class KillResult:
    """What became of a queue when some nodes were killed, and what its members looked like after the start."""

    doomed: str
    fate: Fate
    shown: str


def kill_after_a_declare(cluster: BrokerCluster, ages: Sequence[float]) -> Iterator[KillResult]:
    """Kill some nodes `ages` seconds after a declare, start them, and look."""
    number = 0
    for age in ages:
        for doomed in DOOMED:
            number += 1
            channel = open_channel(cluster.nodes[0])
            time.sleep(1.5)
            one = declare(channel, f"killed-{number}")
            time.sleep(max(0.0, one.at + age - time.monotonic()))
            killed_at = time.monotonic()
            cluster.kill([cluster.nodes[index] for index in doomed])
            cluster.start()
            (fate,) = fates(cluster.nodes[0], [one], killed_at)
            shown = look(cluster.nodes[0], one.name) if fate.fate != "gone" else ""
            names = (
                "all three" if len(doomed) == 3 else " and ".join("leader" if n == 0 else "follower" for n in doomed)
            )
            yield KillResult(names, fate, shown)


def look(broker: Broker, queue: str) -> str:
    """Return state, term and last index of all members in few words; or the error."""
    try:
        found = members(broker, queue)
    except (ManagementRefused, OSError) as error:
        return str(error)
    return ", ".join(f"{member.state} {member.term}/{member.last_index}" for member in found)


def without_majority(cluster: BrokerCluster, patience: float = 150.0) -> list[Measurement]:
    """Take two nodes of three away from a queue, look at it, and publish to it for at most `patience` seconds."""
    left, *gone = cluster.nodes
    knowing = [open_channel(left) for _ in range(2)]
    declare(knowing[0], "minority")
    knowing[0].queue_declare("classic", durable=True, arguments={"x-queue-type": "classic"})
    knowing[1].basic_publish("", "minority", b"x", PERSISTENT)
    time.sleep(2)
    cluster.stop(gone)
    new = [open_channel(left) for _ in range(2)]
    found = [Measurement("two nodes are down: the status API", *timed(lambda: look(left, "minority")))]
    acts = {
        "publish, on a channel that published to it before": lambda: _publish(knowing[0]),
        "publish, on a new channel": lambda: _publish(new[0]),
        "passive declare of a classic queue behind it, known channel": lambda: _behind(knowing[1]),
        "passive declare of a classic queue behind it, new channel": lambda: _behind(new[1]),
    }
    results: dict[str, tuple[float, str]] = {}

    def run(what: str) -> None:
        results[what] = timed(acts[what])

    threads = [threading.Thread(target=run, args=(what,)) for what in acts]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, began + patience - time.monotonic()))
    late = acts.keys() - results.keys()
    found.append(Measurement("later: the status API", *timed(lambda: look(left, "minority"))))
    cluster.start()
    for thread in threads:
        thread.join()
    for channel in (*knowing, *new):
        close(channel)
    for what, (seconds, outcome) in results.items():
        found.append(Measurement(what, seconds, f"{outcome}, once the nodes were back" if what in late else outcome))
    found.append(Measurement("all nodes are up: the status API", *timed(lambda: look(left, "minority"))))
    return found


def _publish(channel: BlockingChannel) -> str:
    channel.basic_publish("", "minority", b"x", PERSISTENT)
    return "confirmed"


def _behind(channel: BlockingChannel) -> str:
    # What pika offers for a publish on a channel with confirms waits for the confirm; this does not.
    channel._impl.basic_publish("", "minority", b"x", PERSISTENT)
    channel.queue_declare("classic", passive=True)
    return "answered"


@dataclass(frozen=True)
class WatchResult:
    """What happened to the nodes, what the samples showed meanwhile, and which queues were not well in the end."""

    what: str
    seen: SampleSummary
    not_well: list[str]


def come_and_go(cluster: BrokerCluster, *, loaded: bool) -> Iterator[WatchResult]:
    """Watch queues that are well while nodes stop, start and are killed, and leaders change."""
    queues = [f"watched-{loaded}-{number}" for number in range(WATCHED)]
    for number, queue in enumerate(queues):
        channel = open_channel(cluster.nodes[number % len(cluster.nodes)])
        declare(channel, queue)
        close(channel)
    time.sleep(3)
    one, two, three = cluster.nodes
    events: dict[str, Callable[[], None]] = {
        "leaders change": lambda: _move_leaders(one, queues),
        "a node is stopped and started": lambda: _away(cluster, [one], cluster.stop),
        "a node is killed and started": lambda: _away(cluster, [two], cluster.kill),
        "two nodes are stopped and started": lambda: _away(cluster, [two, three], cluster.stop),
        "two nodes are killed and started": lambda: _away(cluster, [one, two], cluster.kill),
        "all nodes are stopped and started": lambda: _away(cluster, [one, two, three], cluster.stop),
        "all nodes are killed and started": lambda: _away(cluster, [one, two, three], cluster.kill),
    }
    for what, event in events.items():
        with busy(BURNERS if loaded else 0), watched(cluster.nodes, lambda: queues) as seen:
            event()
            in_the_end = not_well(three, queues)
            time.sleep(2)
        yield WatchResult(f"{what}, under load" if loaded else what, seen, in_the_end)


def while_declared(brokers: Sequence[Broker], *, loaded: bool, declares: int = 40) -> WatchResult:
    """Watch queues through all nodes while they are declared."""
    names: list[str] = []
    channel = open_channel(brokers[0])
    with busy(BURNERS if loaded else 0), watched(brokers, lambda: names[-1:]) as seen:
        for number in range(declares):
            names.append(f"declared-{loaded}-{number}")
            time.sleep(0.02)
            declare(channel, names[-1])
            time.sleep(0.2)
    close(channel)
    what = "queues are declared, under load" if loaded else "queues are declared"
    return WatchResult(what, seen, not_well(brokers[0], names))


def _away(cluster: BrokerCluster, nodes: list[Broker], end: Callable[[list[Broker]], None]) -> None:
    end(nodes)
    time.sleep(2)
    cluster.start()


def _move_leaders(broker: Broker, queues: list[str]) -> None:
    names = ", ".join(f"'%2F_{queue}'" for queue in queues)
    broker.rabbitmqctl(
        "eval",
        f"""
        [begin
             {{ok, Members, Leader}} = ra:members({{Name, node()}}),
             ra:transfer_leadership(Leader, hd(Members -- [Leader]))
         end || _ <- [1, 2, 3], Name <- [{names}]].
        """,
    )
