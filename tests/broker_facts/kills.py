"""How old a quorum queue must be to outlive its broker's SIGKILL, and what the broker does meanwhile that matters."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import pika
from pika.adapters.blocking_connection import BlockingChannel

from testbed.broker import Broker
from testbed.broker_cluster import kill_now
from tests.broker_facts.fates import QUORUM, WELL, DeclaredQueue, Fate, close, declare, fates, members, open_channel

#: Old queues that are there to be used up: deleted one by one, published to, asked for.
OLD = 300
#: Seconds between two actions of a load: less than the half second after which the broker writes a register at rest.
PACE_SECONDS = 0.15


@dataclass
class Rig:
    """A broker with old queues, for one round after the other."""

    broker: Broker
    random: random.Random
    old: list[str]
    rounds: int = 0

    def name(self) -> str:
        self.rounds += 1
        return f"q{self.rounds}"


@dataclass(frozen=True)
class Round:
    """One kill: what the broker was doing, and what became of the queues of this round."""

    load: str
    fates: list[Fate]


#: One thing that a person does to the broker; the name is that of the queue that was just declared.
Action = Callable[[Rig, BlockingChannel, str], object]
ACTIONS: dict[str, Action] = {
    "nothing": lambda _rig, _channel, _name: None,
    "other queues are deleted": lambda rig, channel, _: channel.queue_delete(rig.old.pop()),
    "other queues are published to": lambda rig, channel, _: channel.basic_publish("", rig.old[-1], b"x"),
    "its status is asked for": lambda rig, _, name: members(rig.broker, name),
    "it is declared again": lambda _, channel, name: channel.queue_declare(name, durable=True, arguments=QUORUM),
}


def prepare(broker: Broker, seed: int) -> Rig:
    """Make the old queues."""
    channel = open_channel(broker)
    old = [f"old{number}" for number in range(OLD)]
    for name in old:
        channel.queue_declare(name, durable=True, arguments=QUORUM)
    close(channel)
    return Rig(broker, random.Random(seed), old)


def kill_after(rig: Rig, load: str, age: float) -> Round:
    """Declare one queue, let the load go on until it is `age` seconds old, kill the broker and start it."""
    channel = open_channel(rig.broker)
    # So long that all that was declared before is written.
    time.sleep(1.5)
    one = declare(channel, rig.name())
    until = one.at + age
    while (left := until - time.monotonic()) > 0:
        ACTIONS[load](rig, channel, one.name)
        time.sleep(min(PACE_SECONDS, left))
    return Round(load, _killed(rig, [one]))


def kill_among_declares(rig: Rig, declarers: int, pause: float) -> Round:
    """Let connections declare queues for five seconds, each with `pause` seconds between two, and kill the broker."""
    made: list[DeclaredQueue] = []
    ended = threading.Event()

    def go_on(number: int) -> None:
        channel = open_channel(rig.broker)
        count = 0
        try:
            while not ended.wait(pause * rig.random.uniform(0.5, 1.5)):
                count += 1
                made.append(declare(channel, f"r{rig.rounds}-{number}-{count}"))
        except (pika.exceptions.AMQPError, OSError):
            return

    rig.name()
    threads = [threading.Thread(target=go_on, args=(number,)) for number in range(declarers)]
    for thread in threads:
        thread.start()
    time.sleep(5 + rig.random.random())
    kill_now(rig.broker)
    killed_at = time.monotonic()
    ended.set()
    for thread in threads:
        thread.join()
    confirmed = [queue for queue in made if queue.at < killed_at]
    load = f"{declarers} declare, each every {pause:g} s" if pause else f"{declarers} declare, as fast as they can"
    return Round(load, _killed(rig, confirmed, killed_at))


def kill_after_recreations(rig: Rig) -> Round:
    """Delete four queues, declare them again with the same names, and kill the broker."""
    channel = open_channel(rig.broker)
    names = [rig.old.pop() for _ in range(4)]
    time.sleep(1.5)
    for name in names:
        channel.queue_delete(name)
    return Round("four are deleted and declared again", _killed(rig, [declare(channel, name) for name in names]))


def kill_after_a_throwaway(rig: Rig, *, recreated: bool, fresh: bool) -> Round:
    """Declare a queue, then declare and delete a second one, the throwaway, and kill the broker.

    `recreated`: the queue was deleted just before. `fresh`: the throwaway has a name that was never used.
    """
    channel = open_channel(rig.broker)
    name = rig.old.pop() if recreated else rig.name()
    time.sleep(1.5)

    def throw_away() -> None:
        throwaway = f"throwaway-{rig.name()}" if fresh else "throwaway"
        channel.queue_declare(throwaway, durable=True, arguments=QUORUM)
        channel.queue_delete(throwaway)

    throw_away()
    if recreated:
        channel.queue_delete(name)
    one = declare(channel, name)
    throw_away()
    load = (
        f"{'a recreated' if recreated else 'a new'} queue, and a throwaway of {'a new' if fresh else 'the same'} name"
    )
    return Round(load, _killed(rig, [one]))


def stop_after_a_declare(rig: Rig) -> Round:
    """Declare a queue and end the broker in good order at once."""
    channel = open_channel(rig.broker)
    time.sleep(1.5)
    one = declare(channel, rig.name())
    stopped_at = time.monotonic()
    rig.broker.restart()
    return Round("the broker is stopped in good order", fates(rig.broker, [one], stopped_at))


def keep(broker: Broker, number: int) -> list[str]:
    """Make queues that are to be well, and wait until the register of them is written."""
    channel = open_channel(broker)
    names = [declare(channel, f"kept{index}").name for index in range(number)]
    close(channel)
    time.sleep(3)
    return names


def not_well(broker: Broker, names: list[str]) -> list[str]:
    """Wait until it is clear what became of these queues; return those that are not well, and how they are."""
    found = fates(broker, [DeclaredQueue(name, 0.0) for name in names], 0.0)
    return [f"{queue.name} {queue.fate}" for queue in found if queue.fate != WELL]


def _killed(rig: Rig, declared: list[DeclaredQueue], killed_at: float | None = None) -> list[Fate]:
    if killed_at is None:
        kill_now(rig.broker)
        killed_at = time.monotonic()
    rig.broker.kill()
    rig.broker.start()
    return fates(rig.broker, declared, killed_at)
