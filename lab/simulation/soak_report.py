"""What a soak came to: its samples, what in them has grown, and what became of the requests. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from osrdyne.state import delivery_history, worker_ends
from osrdyne_amqp import lanes

#: Most entries of one container while no key is alive.
IDLE_BOUND = 64
#: Containers with a bound of their own, by a part of their name: most entries.
_OWN_BOUNDS = {
    "DeliveryHistory": delivery_history.MOST_REQUESTS,
    "WorkerEnds": worker_ends.MOST_KEYS * worker_ends.MOST_OF_KEY,
    "Bursts": 4096,
    # Of four channels.
    "._methods": 4 * 1024,
    "Slots.": 8192,
    "ChannelPool._free": 256,
    # Of the daemon and of the client.
    "Lanes._proven": lanes.REMEMBERED,
    "ModelConnection._channels": 300,
    # A table of OpenSSL's codes, which does not change.
    "certificate_faults._FAULTS": 128,
}
#: Entries of one container for each key that is alive, at most: heaps and debounces are tidied only now and then.
LIVE_FACTOR = 8
#: The last tenth may hold this many times what the first held, and this many entries more.
_GROWTH, _SLACK = 1.25, 64
_MB = 1024 * 1024
#: Findings of each kind that are printed.
_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Sample:
    """How large things were at one moment of the run."""

    #: Virtual seconds since the run began.
    at: float
    #: Request queues on the broker.
    live: int
    #: Tasks of the daemon, the client and the worker library.
    tasks: int
    #: Entries of containers, by what holds them.
    sizes: Counter[str]
    #: Bytes of memory of the process after a collection of garbage; None when there was no collection.
    resident: int | None

    def line(self) -> str:
        largest = ", ".join(f"{name} {size}" for name, size in self.sizes.most_common(3))
        memory = "" if self.resident is None else f"{self.resident // _MB:5} MB  "
        return f"{self.at:6.0f} s  {self.live:6} queues  {self.tasks:6} tasks  {memory}{largest}"


@dataclass(slots=True)
class Report:
    """What a soak came to."""

    keys: int
    samples: list[Sample] = field(default_factory=list)
    #: Requests that were sent, and what they came to: a status, an error, `given up`.
    asked: int = 0
    came_to: Counter[str] = field(default_factory=Counter)
    #: Requests that the worker of the worker library served.
    served: int = 0
    complaints: list[str] = field(default_factory=list)

    def findings(self) -> Iterator[str]:
        """Yield what is wrong, a sentence each."""
        for found in (self.too_large(), self.grown(), self.complaints):
            yield from found[:_SHOWN]
        if self.unanswered:
            yield f"{self.unanswered} requests were not answered"

    @property
    def unanswered(self) -> int:
        """Requests that nothing became of, or that timed out."""
        return self.asked - sum(self.came_to.values()) + self.came_to["CallTimeout"]

    def too_large(self) -> list[str]:
        """Return what was larger than the keys that lived at the time explain, a sentence each."""
        found = []
        for sample in self.samples:
            bound = IDLE_BOUND + LIVE_FACTOR * sample.live
            for name, size in sample.sizes.items():
                if size > max(bound, _own_bound(name)):
                    found.append(f"{sample.at:.0f} s: {name} holds {size}")
            if sample.tasks > bound:
                found.append(f"{sample.at:.0f} s: {sample.tasks} tasks")
        return found

    def grown(self) -> list[str]:
        """Return what was larger in the last tenth of the load than in the first, a sentence each."""
        first, last = self._tenths()
        sizes = [(name, _most(first, name), _most(last, name)) for name in _names(last)]
        sizes.append(("tasks", max(sample.tasks for sample in first), max(sample.tasks for sample in last)))
        return [
            f"{name} grew from {before} to {after}"
            for name, before, after in sizes
            if after > max(_GROWTH * before + _SLACK, _own_bound(name))
        ]

    def _tenths(self) -> tuple[list[Sample], list[Sample]]:
        load = self.samples[:-1]  # the last one is taken when the load is over
        tenth = max(1, len(load) // 10)
        return load[:tenth], load[-tenth:]

    def lines(self) -> Iterator[str]:
        """Yield the end of the report; the last line is for programs."""
        first, last = self._tenths()
        yield from self.findings()
        yield "requests: " + ", ".join(f"{what} {count}" for what, count in self.came_to.most_common())
        yield f"served by the worker library: {self.served}"
        for what, (before, after) in {
            "queues": (max(sample.live for sample in first), max(sample.live for sample in last)),
            "tasks": (max(sample.tasks for sample in first), max(sample.tasks for sample in last)),
            "entries": (max(sample.sizes.total() for sample in first), max(sample.sizes.total() for sample in last)),
            "MB": (_memory(first), _memory(last)),
        }.items():
            yield f"{what}, most in the first and in the last tenth: {before}, {after}"
        names = sorted(_names(last), key=lambda name: _most(last, name), reverse=True)
        for name in names[:12]:
            yield f"  {name}: {_most(first, name)}, {_most(last, name)}"
        yield (
            f"soak: keys={self.keys} requests={self.asked} unanswered={self.unanswered} containers={len(names)} "
            f"too_large={len(self.too_large())} grown={len(self.grown())} complaints={len(self.complaints)}"
        )


def _own_bound(name: str) -> int:
    return max((most for part, most in _OWN_BOUNDS.items() if part in name), default=0)


def _names(samples: Iterable[Sample]) -> set[str]:
    return {name for sample in samples for name in sample.sizes}


def _most(samples: Iterable[Sample], name: str) -> int:
    return max(sample.sizes[name] for sample in samples)


def _memory(samples: Iterable[Sample]) -> int:
    return max((sample.resident or 0) for sample in samples) // _MB
