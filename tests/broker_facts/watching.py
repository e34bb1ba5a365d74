"""Watches queues through the status API without a pause: which moments look like a lost queue, and are none."""

from __future__ import annotations

import contextlib
import multiprocessing
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from osrdyne_pool.broker import quorum
from osrdyne_pool.broker.management import ManagementRefused
from testbed.broker import Broker
from tests.broker_facts.fates import members

#: Processes that do nothing but count: two for each of two cores.
BURNERS = 4


@dataclass
class SampleSummary:
    """What the samples showed. A spell is a time without a break in which all samples of a queue said never led."""

    samples: int = 0
    #: How often each sort of answer came, such as `leader+follower+nodedown` or `HTTP 500`.
    answers: dict[str, int] = field(default_factory=dict)
    #: By queue, seconds of its spells.
    spells: dict[str, list[float]] = field(default_factory=dict)

    def longest(self) -> float | None:
        """Seconds of the longest spell, None where there was none."""
        return max((spell for spells in self.spells.values() for spell in spells), default=None)


@contextlib.contextmanager
def watched(brokers: Sequence[Broker], queues: Callable[[], Sequence[str]]) -> Iterator[SampleSummary]:
    """Ask every broker for every queue, again and again, until the block ends."""
    seen, ended = SampleSummary(), threading.Event()
    lock = threading.Lock()

    def go_on(broker: Broker) -> None:
        since: dict[str, float] = {}
        while not ended.is_set():
            for queue in queues():
                answer, never_led = _sample(broker, queue)
                now = time.monotonic()
                with lock:
                    seen.samples += 1
                    seen.answers[answer] = seen.answers.get(answer, 0) + 1
                    if never_led:
                        began = since.setdefault(queue, now)
                        if began == now:
                            seen.spells.setdefault(queue, []).append(0.0)
                        seen.spells[queue][-1] = now - began
                    else:
                        since.pop(queue, None)
            ended.wait(0.002)

    threads = [threading.Thread(target=go_on, args=(broker,)) for broker in brokers]
    for thread in threads:
        thread.start()
    try:
        yield seen
    finally:
        ended.set()
        for thread in threads:
            thread.join()


def _sample(broker: Broker, queue: str) -> tuple[str, bool]:
    try:
        found = members(broker, queue)
    except ManagementRefused as error:
        return f"HTTP {error.status}", False
    except OSError:
        return "no answer", False
    shown = [f"{member.state}{' in term 0' if member.term == 0 else ''}" for member in found]
    return " + ".join(sorted(shown)), quorum.never_led(found)


@contextlib.contextmanager
def busy(processes: int) -> Iterator[None]:
    """Keep the processors busy with so many processes."""
    context = multiprocessing.get_context("spawn")
    burners = [context.Process(target=burn, daemon=True) for _ in range(processes)]
    for burner in burners:
        burner.start()
    try:
        yield
    finally:
        for burner in burners:
            burner.kill()
            burner.join()


def burn() -> None:
    """Count for ever."""
    number = 0
    while True:
        number += 1
