"""How `osrdyne dev` ends its workers: in bounded time, each of them, and none that another daemon uses."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from osrdyne.commands.dev.command import end_groups
from osrdyne.drivers.base import Change, Group, GroupState
from osrdyne.drivers.subprocess.holding import DirectoryLock
from osrdyne.errors import DriverError


@dataclass
class Engine:
    """Groups by key; those of `restarted` are started again as soon as they have stopped, by another daemon."""

    groups: dict[str, GroupState]
    restarted: tuple[str, ...] = ()
    stuck: tuple[str, ...] = ()
    refusals: dict[str, int] = field(default_factory=dict)
    stops: list[str] = field(default_factory=list)
    owns_workers: bool = True
    template: str = "t"

    async def start(self, key: str) -> None:
        self.groups[key] = GroupState.RUNNING

    async def stop(self, key: str) -> None:
        if self.refusals.get(key, 0) > 0:
            self.refusals[key] -= 1
            raise DriverError("another daemon is starting or stopping a worker")
        self.stops.append(key)
        if key in self.restarted:
            self.groups[key] = GroupState.RUNNING
        elif key in self.stuck:
            self.groups[key] = GroupState.STOPPING
        else:
            del self.groups[key]

    async def list(self) -> list[Group]:
        return [Group(key, state, 1, "t") for key, state in self.groups.items()]

    async def changes(self) -> AsyncIterator[Change]:
        for change in list[Change]():
            yield change

    async def close(self) -> None:
        pass


RUNNING = GroupState.RUNNING


@pytest.mark.looptime
async def test_a_worker_that_another_daemon_starts_again_is_neither_waited_for_nor_stopped_again() -> None:
    engine = Engine({"a": RUNNING, "b": RUNNING}, restarted=("a",))

    await asyncio.wait_for(end_groups(engine, 1000), 15)

    assert sorted(engine.stops) == ["a", "b"]


@pytest.mark.looptime
async def test_a_worker_that_cannot_be_stopped_spares_no_other_and_is_stopped_when_it_can_be() -> None:
    engine = Engine({"a": RUNNING, "b": RUNNING, "c": RUNNING}, refusals={"a": 3, "b": 3})

    await end_groups(engine, 15)

    assert engine.groups == {}


@pytest.mark.looptime
async def test_a_worker_that_does_not_end_is_named_when_the_time_is_over(caplog: pytest.LogCaptureFixture) -> None:
    await asyncio.wait_for(end_groups(Engine({"a": RUNNING, "b": RUNNING}, stuck=("a",)), 15), 20)

    assert [record.__dict__["workers"] for record in caplog.records] == [{"a": "it was asked to stop"}]


def test_workers_are_held_by_many_daemons_or_by_a_program_that_is_alone(tmp_path: Path) -> None:
    dev = DirectoryLock(tmp_path, alone=True)
    with pytest.raises(DriverError, match=r"another osrdyne daemon or `osrdyne dev` runs workers in .*; end it first"):
        DirectoryLock(tmp_path, alone=True)
    assert dev.is_alone()

    daemon = DirectoryLock(tmp_path)
    assert not dev.is_alone()
    dev.close()
    with pytest.raises(DriverError, match="end it first"):
        DirectoryLock(tmp_path, alone=True)
    daemon.close()
    DirectoryLock(tmp_path, alone=True).close()


def test_a_program_that_is_killed_holds_nothing(tmp_path: Path) -> None:
    code = "import os, sys; from osrdyne.drivers.subprocess.holding import DirectoryLock; from pathlib import Path\n"
    code += "DirectoryLock(Path(sys.argv[1]), alone=True); os.kill(os.getpid(), 9)"
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False).returncode == -9

    DirectoryLock(tmp_path, alone=True).close()
