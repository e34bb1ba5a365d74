"""Virtual time for code that blocks: each thread of a simulated process is a greenlet, and one goes on at a time.

A thread gives control away where it waits, and at its steps: the places where a process may die or stand still. Who
goes on, and which process dies where, is up to the seed. Reads no clock and sleeps nowhere.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from greenlet import greenlet

#: A step takes up to so many seconds of virtual time, and now and then the second number.
SHORT_STEP, LONG_STEP = 0.01, 0.5
#: How often a step is a long one.
LONG_STEPS = 0.05


class ProcessKilled(BaseException):
    """The process of this thread is gone. No code of the product catches it for good."""


@dataclass(slots=True, eq=False)
class Process:
    """A simulated process: what dies, or stands still, as one."""

    name: str
    #: Its monotonic clock is so many seconds ahead.
    clock_offset: float
    #: Whether the scheduler may kill and pause it.
    mortal: bool = True
    alive: bool = True
    paused_until: float = 0.0
    threads: list[Thread] = field(default_factory=list)
    #: Called once when it is gone.
    at_end: list[Callable[[], None]] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Thread:
    """A thread of a simulated process."""

    name: str
    process: Process
    greenlet: Any = None
    #: Which of its wake-ups counts; all earlier ones are stale.
    ticket: int = 0
    notified: bool = False

    @property
    def ended(self) -> bool:
        return bool(self.greenlet.dead)


@dataclass(frozen=True, slots=True)
class Dangers:
    """How likely a step ends its process, or lets it stand still, while faults last."""

    kill: float = 0.0
    pause: float = 0.0
    #: Seconds of a pause, at least and at most.
    pauses: tuple[float, float] = (1.0, 60.0)


class Scheduler:
    """Decides who goes on, and when."""

    def __init__(self, seed: int, *, begin: float, dangers: Dangers, safe_after: float) -> None:
        """Begin at a moment; no process is killed or paused from `safe_after` on."""
        self.now = begin
        self.random = random.Random(f"jobs {seed}")
        self.current: Thread | None = None
        self.trace: list[str] = []
        #: What no thread should have raised.
        self.errors: list[str] = []
        #: Called with a process that begins to stand still, and until when.
        self.on_pause: Callable[[Process, float], None] = lambda *_: None
        self._begin = begin
        self._dangers = dangers
        self._safe_after = safe_after
        self._waiting: list[tuple[float, int, Callable[[], object]]] = []
        self._order = count()
        self._hub = greenlet.getcurrent()
        self._doomed: list[Process] = []
        self._processes: list[Process] = []

    def note(self, text: str) -> None:
        """Add a line to the trace."""
        who = self.current.process.name if self.current is not None else "-"
        self.trace.append(f"{self.now - self._begin:9.3f} {who:<12} {text}")

    # --- processes and threads ----------------------------------------------------------------------------------

    def process(self, name: str, *, mortal: bool = True) -> Process:
        made = Process(name, self.random.uniform(0, 1e6), mortal)
        self._processes.append(made)
        return made

    def thread(self, process: Process, name: str, target: Callable[[], object]) -> Thread:
        """Start a thread. It begins at a step of its own, not within this call."""
        if not process.alive:
            raise ProcessKilled
        made = Thread(name, process)

        def body() -> None:
            try:
                target()
            except ProcessKilled:
                return
            except Exception as error:  # noqa: BLE001 - it is a finding, and the others go on
                self.errors.append(f"{process.name}, thread {name}: {type(error).__name__}: {error}")

        made.greenlet = greenlet(body, parent=self._hub)
        process.threads.append(made)
        self._wake_at(self.now + self._duration(), made)
        return made

    def kill(self, process: Process) -> None:
        """End a process between two steps. Its threads do nothing any more. Call it from outside of its threads."""
        if not process.alive:
            return
        process.alive = False
        self.note(f"{process.name} is gone")
        for thread in process.threads:
            if thread.greenlet:  # it has begun, and has not ended
                self._switch(thread, ProcessKilled)
        for call in process.at_end:
            call()
        process.threads.clear()

    def pause(self, process: Process, seconds: float) -> None:
        """Let a process stand still."""
        process.paused_until = self.now + seconds
        self.note(f"{process.name} stands still for {seconds:.1f} s")
        self.on_pause(process, process.paused_until)

    # --- for the threads ----------------------------------------------------------------------------------------

    def step(self, label: str) -> None:
        """Let others go on. The process may be killed or paused here."""
        self.may_end(label)
        self._park_until(self.now + self._duration())

    def may_end(self, label: str) -> None:
        """Go on at once, unless the process is killed or paused here."""
        process = self._mine().process
        if not process.mortal or self.now >= self._safe_after:
            return
        chance = self.random.random()
        if chance < self._dangers.kill:
            self.note(f"killed at: {label}")
            self.die()
        elif chance < self._dangers.kill + self._dangers.pause:
            self.note(f"paused at: {label}")
            self.pause(process, self.random.uniform(*self._dangers.pauses))
            self._park_until(self.now)

    def die(self) -> None:
        """End the process of this thread."""
        self._doomed.append(self._mine().process)
        self._hub.switch()
        raise ProcessKilled

    def sleep(self, seconds: float) -> None:
        self.may_end("sleep")
        self._park_until(self.now + seconds)

    def park(self, timeout: float | None) -> bool:
        """Wait for `wake`. Returns False where the time was over first."""
        thread = self._mine()
        thread.ticket += 1
        thread.notified = False
        if timeout is not None:
            self._wake_at(self.now + timeout, thread)
        self._hub.switch()
        self._mine()
        return thread.notified

    def wake(self, thread: Thread) -> None:
        """End the `park` of a thread, if it is in one."""
        if not thread.ended and thread.process.alive and not thread.notified:
            thread.notified = True
            thread.ticket += 1
            self._wake_at(self.now + self._duration(), thread)

    def monotonic(self) -> float:
        """Return the process's own clock, which has nothing to do with that of the database."""
        return self.now + self._mine().process.clock_offset

    def me(self) -> Thread:
        """Return the thread that calls. Raises Killed where its process is gone."""
        return self._mine()

    # --- the hub ------------------------------------------------------------------------------------------------

    def at(self, when: float, call: Callable[[], object]) -> None:
        """Call something at a moment, outside of all threads."""
        heapq.heappush(self._waiting, (when, next(self._order), call))

    def after(self, seconds: float, call: Callable[[], object]) -> None:
        self.at(self.now + seconds, call)

    def run(self, over: Callable[[], bool], until: float) -> None:
        """Go on until `over` says so, or a moment is reached."""
        while self._waiting and not over():
            when, _, call = heapq.heappop(self._waiting)
            if when > until:
                return
            self.now = max(self.now, when)
            call()
            while self._doomed:
                self.kill(self._doomed.pop())

    def end(self) -> None:
        """End all processes."""
        for process in self._processes:
            self.kill(process)

    def _mine(self) -> Thread:
        assert self.current is not None, "only a simulated thread may wait"
        if not self.current.process.alive:
            raise ProcessKilled
        return self.current

    def _duration(self) -> float:
        return self.random.uniform(0, LONG_STEP if self.random.random() < LONG_STEPS else SHORT_STEP)

    def _park_until(self, when: float) -> None:
        thread = self._mine()
        thread.ticket += 1
        self._wake_at(when, thread)
        self._hub.switch()
        self._mine()

    def _wake_at(self, when: float, thread: Thread) -> None:
        ticket = thread.ticket

        def wake() -> None:
            if thread.ticket != ticket or thread.ended or not thread.process.alive:
                return
            if thread.process.paused_until > self.now:
                self.at(thread.process.paused_until, wake)
                return
            self._switch(thread)

        self.at(when, wake)

    def _switch(self, thread: Thread, error: type[BaseException] | None = None) -> None:
        before, self.current = self.current, thread
        try:
            if error is None:
                thread.greenlet.switch()
            else:
                thread.greenlet.throw(error)
        finally:
            self.current = before
