"""The pool: takes casts, keeps them in a queue for each resource, and starts and stops the workers that read it.

It stands for the broker and the daemon, and promises less than they do: a cast may be lost although it was confirmed,
come twice or late, or be taken although its sender hears otherwise.
"""

from __future__ import annotations

import concurrent.futures
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from osrdyne_client.errors import Unconfirmed, Undeliverable
from simulation.jobs.scenario import Casts
from simulation.jobs.scheduler import Process, Scheduler
from simulation.jobs.threads import Event

#: A message that so many workers had and did not settle goes to the poison inventory.
MOST_DELIVERIES = 4
#: Seconds without a message after which a group of workers is stopped: more than twice redo's `alive_interval`.
UNBIND_DELAY_SECONDS = 60.0
#: Seconds that a worker takes to start, at most.
START_SECONDS = 3.0
#: Seconds after which a worker that stands still is taken for gone.
HEARTBEAT_SECONDS = 15.0
#: Seconds by which a cast is late, at most.
LATE_SECONDS = 60.0


@dataclass(slots=True, eq=False)
class Message:
    """A request in a queue."""

    body: bytes
    deliveries: int = 0


@dataclass(slots=True)
class Group:
    """The queue of a resource and its workers."""

    waiting: deque[Message] = field(default_factory=deque)
    workers: dict[Process, list[Message]] = field(default_factory=dict)
    #: Workers that take no more messages.
    stopping: set[Process] = field(default_factory=set)
    #: Workers that stand still for so long that broker and daemon take them for gone.
    cut_off: set[Process] = field(default_factory=set)
    starting: int = 0
    #: When a message last came, was taken, or was settled.
    used_at: float = 0.0


class Pool:
    """Broker and daemon."""

    def __init__(
        self,
        scheduler: Scheduler,
        casts: Casts,
        *,
        size: int,
        away: Callable[[], bool],
        faulty: Callable[[], bool],
        start: Callable[[str], Process],
    ) -> None:
        """`start` starts a worker of a resource; `size` of them are a group. `casts` counts while `faulty`."""
        self._scheduler = scheduler
        self._casts = casts
        self._size = size
        self._away = away
        self._faulty = faulty
        self._start = start
        self.groups: dict[str, Group] = defaultdict(Group)
        self._arrived = Event(scheduler)

    def start_cast(self, key: str, body: bytes, *, timeout: float | None = None) -> concurrent.futures.Future[None]:
        """Take a cast, as the client of a pool does."""
        self._scheduler.step(f"cast to {key}")
        future: concurrent.futures.Future[None] = concurrent.futures.Future()
        chance = self._scheduler.random
        if self._away():
            if chance.random() < 0.2:
                self._publish(key, body)
            self._scheduler.after(chance.uniform(0, timeout or 5.0), lambda: future.set_exception(Unconfirmed()))
            return future
        if self._faulty() and chance.random() < self._casts.refused:
            future.set_exception(Undeliverable())
            return future
        self._publish(key, body)
        self._scheduler.after(chance.uniform(0, 0.05), lambda: future.set_result(None))
        return future

    def submit(self, key: str, body: bytes, *, timeout: float | None = None) -> concurrent.futures.Future[None]:
        """Take a call: as a cast, and its answer never comes. No job depends on one."""
        self.start_cast(key, body, timeout=timeout)
        return concurrent.futures.Future()

    def _publish(self, key: str, body: bytes) -> None:
        chance, faulty = self._scheduler.random, self._faulty()
        if faulty and chance.random() < self._casts.lost:
            self._scheduler.note(f"the cast to {key} is lost")
            return
        for _ in range(2 if faulty and chance.random() < self._casts.doubled else 1):
            late = faulty and chance.random() < self._casts.late
            delay = chance.uniform(0, LATE_SECONDS if late else 0.05)
            self._scheduler.after(delay, lambda: self._arrive(key, body))

    def _arrive(self, key: str, body: bytes) -> None:
        group = self.groups[key]
        group.used_at = self._scheduler.now
        group.waiting.append(Message(body))
        self._offer(key)

    def _offer(self, key: str) -> None:
        """Wake the workers of a resource, and start those that are missing."""
        group = self.groups[key]
        self._arrived.set()
        self._arrived = Event(self._scheduler)
        able = [worker for worker in group.workers if worker not in group.stopping and worker not in group.cut_off]
        running = len(able) + group.starting
        for _ in range(self._size - running if group.waiting else 0):
            group.starting += 1
            self._scheduler.after(self._scheduler.random.uniform(0.1, START_SECONDS), lambda: self._begin(key))

    def _begin(self, key: str) -> None:
        group = self.groups[key]
        group.starting -= 1
        process = self._start(key)
        group.workers[process] = []
        process.at_end.append(lambda: self._gone(key, process))

    def _gone(self, key: str, process: Process) -> None:
        """Give back what a worker had."""
        group = self.groups[key]
        group.stopping.discard(process)
        group.cut_off.discard(process)
        self._give_back(group, group.workers.pop(process, []))
        self._offer(key)

    def _give_back(self, group: Group, messages: list[Message]) -> None:
        group.waiting.extendleft(message for message in messages if message.deliveries < MOST_DELIVERIES)
        messages.clear()

    def paused(self, process: Process, until: float) -> None:
        """Take note that a process stands still. What a worker had is given back when the broker notices."""
        for key, group in self.groups.items():
            if process in group.workers:
                self._scheduler.after(HEARTBEAT_SECONDS, partial(self._notice, key, process))
                self._scheduler.at(until, partial(group.cut_off.discard, process))

    def _notice(self, key: str, process: Process) -> None:
        group = self.groups[key]
        if process in group.workers and process.paused_until > self._scheduler.now:
            group.cut_off.add(process)
            self._give_back(group, group.workers[process])
            self._offer(key)

    def take(self, key: str, process: Process) -> Message | None:
        """Wait for a message. Returns None once the worker is to stop."""
        group = self.groups[key]
        while process not in group.stopping:
            if group.waiting:
                message = group.waiting.popleft()
                message.deliveries += 1
                group.used_at = self._scheduler.now
                group.workers.setdefault(process, []).append(message)
                return message
            self._arrived.wait()
        return None

    def settle(self, key: str, process: Process, message: Message) -> None:
        """Acknowledge a message, unless the broker has taken it back."""
        group = self.groups[key]
        group.used_at = self._scheduler.now
        if message in group.workers[process]:
            group.workers[process].remove(message)

    def requeue(self, key: str, process: Process, message: Message) -> None:
        """Give a message back, unless the broker has taken it back."""
        group = self.groups[key]
        if message in group.workers[process]:
            group.workers[process].remove(message)
            self._give_back(group, [message])
            self._offer(key)

    def stop(self, key: str, process: Process) -> None:
        """Let a worker take no more messages."""
        self.groups[key].stopping.add(process)
        self._offer(key)

    def unused(self) -> list[tuple[str, Process]]:
        """Return the workers of groups that had no message for long, and hold none."""
        return [
            (key, process)
            for key, group in self.groups.items()
            if group.used_at + UNBIND_DELAY_SECONDS < self._scheduler.now
            if not group.waiting and not any(group.workers.values())
            for process in group.workers
            if process not in group.stopping
        ]
