"""Stops that take half an hour, on a clock that does not: each container is asked once within its own grace."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest

from osrdyne.drivers.docker import stopping
from osrdyne.drivers.docker.engine import Conflict
from osrdyne.drivers.docker.facts import Container
from osrdyne.drivers.docker.stopping import Stops

STOPPING = Container("c", "42", "t", "running", stopping=True)


@dataclass
class RememberingEngine:
    """Stands in for an engine with one container: what it remembers of it, and its grace."""

    remembers: list[str]
    grace: int = 1800
    stops: int = 0
    #: The engine's init is the first process, and how many there are at each look; the last number stays.
    init: bool = False
    running: list[int] = field(default_factory=lambda: [2])

    async def stop(self, container_id: str) -> None:
        self.stops += 1
        self.remembers.append("kill")

    async def past_events(self, container_id: str) -> list[dict[str, Any]]:
        return [{"Action": action} for action in self.remembers]

    async def inspect(self, container_id: str) -> dict[str, Any]:
        return {"Config": {"StopTimeout": self.grace}, "HostConfig": {"Init": self.init}}

    async def processes(self, container_id: str) -> int:
        if not self.running:
            raise Conflict("is not running")
        return self.running.pop(0) if len(self.running) > 1 else self.running[0]


@dataclass
class Clock:
    now: float = 1000.0

    def monotonic(self) -> float:
        return self.now


@dataclass
class Scene:
    """One daemon's view of one engine."""

    engine: RememberingEngine
    clock: Clock = field(default_factory=Clock)

    def stops(self) -> Stops:
        return Stops(self.engine)


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    made = Scene(RememberingEngine(["start", "rename"]))
    monkeypatch.setattr(stopping, "time", made.clock)
    return made


async def test_within_its_grace_a_container_is_asked_once_however_often_it_is_seen(scene: Scene) -> None:
    stops = scene.stops()
    assert not stops.is_under_way(STOPPING)
    await stops.see_to(STOPPING)
    for _ in range(3):
        assert stops.is_under_way(STOPPING)
        await stops.see_to(STOPPING)
        scene.clock.now += 600
    assert scene.engine.stops == 1


async def test_the_next_daemon_asks_nothing_that_the_engine_remembers(scene: Scene) -> None:
    await scene.stops().see_to(STOPPING)
    await scene.stops().see_to(STOPPING)
    assert scene.engine.stops == 1


async def test_where_the_engine_has_forgotten_a_whole_grace_is_waited_for(scene: Scene) -> None:
    scene.engine.remembers.clear()
    stops = scene.stops()
    await stops.see_to(STOPPING)
    assert (scene.engine.stops, stops.is_under_way(STOPPING)) == (0, True)
    scene.clock.now += 1860
    assert not stops.is_under_way(STOPPING)
    await stops.see_to(STOPPING)
    assert (scene.engine.stops, stops.is_under_way(STOPPING)) == (1, True)


async def test_what_the_engine_should_have_killed_long_ago_is_asked_again(scene: Scene) -> None:
    stops = scene.stops()
    await stops.ask(STOPPING)
    scene.clock.now += 1861
    await stops.see_to(STOPPING)
    assert scene.engine.stops == 2


async def test_an_engine_that_was_started_again_is_asked_what_it_remembers(scene: Scene) -> None:
    stops = scene.stops()
    await stops.ask(STOPPING)
    scene.engine.remembers.append("start")
    stops.forget_all()
    await stops.see_to(STOPPING)
    assert scene.engine.stops == 2


async def test_a_container_that_has_gone_is_forgotten(scene: Scene) -> None:
    stops = scene.stops()
    await stops.ask(STOPPING)
    stops.note_kill("c")
    assert stops.was_killed("c")
    stops.forget("c")
    assert not stops.was_killed("c")
    assert not stops.is_under_way(STOPPING)


@pytest.mark.looptime
@pytest.mark.parametrize(
    "init, running, seconds",
    [
        pytest.param(True, [1, 1, 1, 2], 0.3, id="until init has started the worker"),
        pytest.param(True, [1], stopping.INIT_PATIENCE_SECONDS, id="not for ever"),
        pytest.param(True, [], 0.0, id="not where nothing runs"),
        pytest.param(False, [1], 0.0, id="not for a worker that is its container's first process"),
    ],
)
async def test_the_first_signal_waits(scene: Scene, init: bool, running: list[int], seconds: float) -> None:
    scene.engine.init, scene.engine.running = init, running
    began = asyncio.get_running_loop().time()
    await scene.stops().ask(STOPPING)
    assert scene.engine.stops == 1
    assert asyncio.get_running_loop().time() - began == pytest.approx(seconds, abs=0.11)
