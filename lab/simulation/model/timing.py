"""How long things take in the model, in seconds; ranges are uniform."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple


class Range(NamedTuple):
    """At least and at most, in seconds."""

    least: float
    most: float


@dataclass(slots=True)
class ConfirmTiming:
    """How the broker settles publishes. May be changed while it runs."""

    #: From the message being in its queues to its confirm leaving. A wide range gives confirms out of order.
    delay: Range = field(default=Range(0.0, 0.002))
    #: Probability that a due confirm also settles all smaller ones that are due (`multiple`).
    multiple: float = 0.3
    #: Probability that a publish is refused (basic.nack) although nothing is wrong with it; it is in no queue then.
    refuse: float = 0.0
    #: Probability that the confirm of an accepted publish never comes.
    never: float = 0.0
    #: Probability that the broker does not know that a dead letter has arrived, and publishes it again later.
    letters_again: float = 0.0


@dataclass(slots=True)
class Timing:
    """A broker's delays; the defaults are those of an idle broker on the same network. May be changed while it runs."""

    #: One way between client and broker, each operation and each answer.
    latency: Range = field(default=Range(0.0001, 0.002))
    #: From a publish being routed to its being in its queues.
    enqueue: Range = field(default=Range(0.0, 0.001))
    #: What a declare, bind or delete takes in the broker.
    work: Range = field(default=Range(0.001, 0.01))
    #: Log-in.
    connect: Range = field(default=Range(0.002, 0.02))
    #: From a dead letter leaving its queue to its being published.
    dead_letter: Range = field(default=Range(0.001, 0.01))
    #: Until a dead letter that found no queue, or no confirm, is tried again (180 in RabbitMQ).
    dead_letter_retry: float = 180.0
    #: Between two samples of a queue's totals, and how much later the management API shows one.
    statistics_interval: float = 5.0
    statistics_lag: Range = field(default=Range(0.0, 2.0))
    #: One call of the management API.
    management: Range = field(default=Range(0.002, 0.05))
