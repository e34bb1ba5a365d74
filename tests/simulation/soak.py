"""The soak: an hour of virtual time in which many keys come and go, and how large everything in the daemon becomes.

What the daemon holds is measured from outside: every container that can be reached from its state and its tasks.
A key that is gone must leave nothing behind, so the sizes at the end are those of a daemon without keys, however
many there were; while keys come and go they are bounded by the keys that live at the same time.
"""

from __future__ import annotations

import asyncio
import gc
import heapq
import types
from collections import deque
from collections.abc import Iterator, Sized
from dataclasses import dataclass, field
from typing import Any

from osrdyne import handouts
from osrdyne_protocol.settings import PoolSettings
from tests.simulation import virtual_time
from tests.simulation.model import History
from tests.simulation.scenario import Kind, RequestPlan, Scenario
from tests.simulation.world import World

#: Virtual seconds: of the load, between two measurements, and until the last key is gone.
LENGTH, _MEASURE, _SETTLE = 3600.0, 300.0, 90.0
_SECOND_LOOK = 30.0
#: What a daemon without keys may hold in one container, and what holds more because it says how much at most.
IDLE_BOUND = 64
_FIXED = {"handouts": handouts.MOST_REQUESTS, "_debounce": 4096}
#: How often as many keys as are alive one container may hold: heaps and debounces are tidied only now and then.
LIVE_FACTOR = 8

_CONTAINERS = (dict, list, set, deque, frozenset, tuple)
_LEAVES = (str, bytes, int, float, type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType)


@dataclass(slots=True)
class Measurement:
    """How large things were at a moment of the run."""

    at: float
    #: Request queues on the broker.
    live: int
    tasks: int
    #: The largest containers: (length, where).
    largest: list[tuple[int, str]]


@dataclass(slots=True)
class Report:
    """What a soak came to."""

    keys: int
    answered: int = 0
    measurements: list[Measurement] = field(default_factory=list)

    def too_large(self) -> list[str]:
        """Return what grew beyond its bound, a sentence each."""
        found = []
        for one in self.measurements:
            bound = IDLE_BOUND + LIVE_FACTOR * one.live
            for size, where in one.largest:
                fixed = max((most for name, most in _FIXED.items() if name in where), default=0)
                if size > max(bound, fixed):
                    found.append(f"{one.at:.0f} s: {where} holds {size}")
            if one.tasks > bound:
                found.append(f"{one.at:.0f} s: {one.tasks} tasks")
        return found


class _Nothing(History):
    """Keeps nothing but the number of answers."""

    def __init__(self) -> None:
        super().__init__()
        self.answers = 0

    def add(self, *_: Any, **__: Any) -> None:
        """Forget it."""


def soak(keys: int) -> Report:
    """Let `keys` keys be called once each within an hour, and measure."""
    return virtual_time.run(0, lambda: _run(keys))


async def _run(keys: int) -> Report:
    pool = PoolSettings("core", unbind_delay=4.0, stop_delay=2.0, message_ttl=90.0, orphan_ttl=40.0)
    history = _Nothing()
    world = World(Scenario(0, Kind.CALM, "4.3", pool, (), (), (), end=LENGTH), history)
    loop = world.loop

    def note(kind: str, *_: Any) -> None:
        history.answers += kind == "answered"

    world.note = note  # type: ignore[method-assign,assignment]
    world.start()
    report = Report(keys)
    sending = loop.create_task(_send(world, keys))
    while loop.time() < LENGTH:
        await asyncio.sleep(_MEASURE)
        report.measurements.append(_measure(world))
    await sending
    await asyncio.sleep(_SETTLE)
    while not world.at_rest():  # noqa: ASYNC110 - virtual time
        await asyncio.sleep(_SECOND_LOOK)
    report.measurements.append(_measure(world))
    report.answered = history.answers
    return report


async def _send(world: World, keys: int) -> None:
    for number in range(keys):
        plan = RequestPlan(f"r{number}", 0.0, f"key-{number}", client=number % len(world.clients))
        world.clients[plan.client].send(plan)
        await asyncio.sleep(LENGTH / keys)


def _measure(world: World) -> Measurement:
    daemon = world.daemons[0]
    gc.collect()
    sizes = [(len(found), where) for found, where in _reachable([("state", daemon.state), ("daemon", daemon.task)])]
    prefix = world.names.request_queue_prefix
    live = sum(name.startswith(prefix) for name in world.broker.queue_names())
    tasks = sum(one.get_name() not in ("", "Task") for one in asyncio.all_tasks())
    return Measurement(world.loop.time(), live, tasks, heapq.nlargest(5, sizes, key=lambda one: one[0]))


def _reachable(roots: list[tuple[str, Any]]) -> Iterator[tuple[Sized, str]]:
    """Yield every container that the daemon's own objects lead to, and the way to it."""
    seen: set[int] = set()
    waiting = list(roots)
    while waiting:
        where, one = waiting.pop()
        if id(one) in seen or isinstance(one, _LEAVES) or _is_foreign(one):
            continue
        seen.add(id(one))
        if isinstance(one, _CONTAINERS):
            yield one, where
            parts = list(one.items()) if isinstance(one, dict) else list(one)
            # A large container of small things: that it is large is all there is to say.
            for part in parts[:200]:
                key, value = part if isinstance(one, dict) else ("", part)
                waiting.append((f"{where}[{key}]" if isinstance(key, str) else where, value))
        elif isinstance(one, asyncio.Task):
            waiting += [(f"{where}.{one.get_name()}", part) for part in _of_task(one)]
        else:
            waiting += [(f"{where}.{name}", part) for name, part in _attributes(one)]


def _is_foreign(one: Any) -> bool:
    """Say whether an object is the simulation's, not the daemon's."""
    return type(one).__module__.startswith("tests.") and type(one).__name__ != "_OnModel"


def _of_task(task: asyncio.Task[Any]) -> list[Any]:
    parts: list[Any] = []
    coroutine: Any = task.get_coro()
    while coroutine is not None and hasattr(coroutine, "cr_frame"):
        if coroutine.cr_frame is not None:
            parts += list(coroutine.cr_frame.f_locals.values())
        coroutine = coroutine.cr_await
    return parts


def _attributes(one: Any) -> list[tuple[str, Any]]:
    if isinstance(one, types.MethodType):
        return [("__self__", one.__self__)]
    names = list(getattr(one, "__dict__", ()))
    for kind in type(one).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        names += [slots] if isinstance(slots, str) else list(slots)
    return [(name, getattr(one, name, None)) for name in names if not name.startswith("__")]


def main(keys: int) -> int:
    """Print how large things became; the exit code is 1 when something grew without limit."""
    report = soak(keys)
    for one in report.measurements:
        largest = ", ".join(f"{where}: {size}" for size, where in one.largest[:3])
        print(f"{one.at:6.0f} s  {one.live:6} queues  {one.tasks:6} tasks  largest: {largest}")
    found = report.too_large()
    print("\n".join(found), end="\n" if found else "")
    print(f"soak: keys={report.keys} answered={report.answered} too_large={len(found)}", flush=True)
    return 1 if found or report.answered < report.keys else 0
