"""Each program that is started while what it needs is away for two minutes: it waits, and says the same three kinds
of lines, or it ends at once with an error that says where nothing answers.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from osrdyne_client import AsyncClient, Client
from osrdyne_jobs import AsyncJobClient, JobClient, JobType
from osrdyne_protocol.errors import OsrdyneError
from osrdyne_relay.client import AsyncRelayClient, RelayClient
from tests.unit.command.every_command import COMMANDS
from tests.unit.repo import named_tests
from tests.unit.runtime import away_brokers, away_jobs, away_relay
from tests.unit.runtime.away_at_start import PLACE, Rig, WaitingProgram, assert_three_kinds_of_lines

BROKER, NODE = f"amqp://user:secret@{PLACE}/v", f"http://{PLACE}"
JOB = JobType("routes")


async def open_client() -> None:
    await AsyncClient(BROKER, "core").open()


async def submit() -> None:
    async with AsyncJobClient(away_jobs.DATABASE, [JOB]) as jobs:
        await jobs.submit("routes", "r", {})


async def call() -> None:
    async with AsyncRelayClient(NODE) as client:
        await client.call("maps/LAX", b"")


def submit_in_thread() -> None:
    with JobClient(away_jobs.DATABASE, [JOB]) as jobs:
        jobs.submit("routes", "r", {})


def call_in_thread() -> None:
    with RelayClient(NODE) as client:
        client.call("maps/LAX", b"")


#: Programs that wait.
WAITING: dict[str, WaitingProgram] = {**away_brokers.PROGRAMS, **away_relay.PROGRAMS, **away_jobs.PROGRAMS}
#: Programs whose test needs Spark or proton, and the test.
ELSEWHERE = {
    "osrdyne pipeline ingest": "pipeline/source/test_ingest_away::"
    "test_a_run_that_follows_waits_for_its_broker_and_says_the_three_lines_of_an_outage",
    "osrdyne_bus.aio.AsyncBus": "bus/on_peers/test_away_at_start::"
    "test_a_bus_that_is_opened_while_its_peers_are_away_ends_at_once_and_says_where_they_are",
}
#: What ends at once. Its caller is there, and decides whether to try again.
ENDING: dict[str, Callable[[], object]] = {
    "osrdyne_client.AsyncClient": lambda: asyncio.run(open_client()),
    "osrdyne_client.Client": lambda: Client(BROKER, "core").open(),
    "osrdyne_jobs.AsyncJobClient": lambda: asyncio.run(submit()),
    "osrdyne_jobs.JobClient": submit_in_thread,
    "osrdyne_relay.client.AsyncRelayClient": lambda: asyncio.run(call()),
    "osrdyne_relay.client.RelayClient": call_in_thread,
}
#: Commands that end at once: tests/unit/command has a test of each.
ENDING_COMMANDS = {
    *("bus ping", "bus watch", "call", "lint", "poison bury", "poison list", "poison replay", "poison show"),
    *("jobs cancel", "jobs create", "jobs delete", "jobs list", "jobs migrate", "jobs prepare-database"),
    *("jobs restored", "jobs schemas", "jobs show", "pipeline forget", "pipeline recommend", "pipeline report"),
    *("pipeline bill", "pipeline run"),
    *("pipeline tables", "pool apply", "pool diff", "pool remove", "relay check", "relay redis", "relay token"),
    *("dev", "new", "replay", "status"),
}
#: What is part of a program of these tables, or of an answer.
PARTS = {
    "osrdyne_jobs.Redo": "osrdyne jobs redo",
    "osrdyne_jobs.http.serve": "osrdyne jobs serve",
    "osrdyne_relay.Relay": "osrdyne relay serve",
    "osrdyne_relay.Response": "osrdyne_relay.client.AsyncRelayClient",
    "osrdyne_relay.client.BlockingResponse": "osrdyne_relay.client.RelayClient",
    "osrdyne_relay.http.serve": "osrdyne relay serve",
    "osrdyne_worker.run": "osrdyne_worker.serve",
}
#: Modules of programs of others, and what begins something there.
LIBRARIES = (
    *("osrdyne_client", "osrdyne_worker", "osrdyne_jobs", "osrdyne_jobs.http"),
    *("osrdyne_relay", "osrdyne_relay.client", "osrdyne_relay.http", "osrdyne_relay.worker"),
)
BEGINNINGS = {"open", "run", "serve", "__enter__", "__aenter__"}


@pytest.mark.looptime
@pytest.mark.parametrize("name", WAITING)
async def test_a_program_that_waits_at_its_start_says_the_same_three_kinds_of_lines(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    program = WAITING[name]
    await program.live(Rig(tmp_path, monkeypatch))

    assert_three_kinds_of_lines(caplog.records, program.needs, program.place)
    assert "secret" not in caplog.text


@pytest.mark.parametrize("name", ENDING)
def test_what_does_not_wait_ends_at_once_and_says_where_nothing_answers(name: str) -> None:
    with pytest.raises(OsrdyneError, match=r"127\.0\.0\.1.*1.*refused|127\.0\.0\.1:1.*Connect call failed"):
        ENDING[name]()


def test_each_command_waits_or_ends_at_once() -> None:
    waiting = {name.removeprefix("osrdyne ") for name in (*WAITING, *ELSEWHERE)} & {*COMMANDS}

    assert sorted([*waiting, *ENDING_COMMANDS]) == sorted(COMMANDS)


def test_each_public_program_of_a_library_is_covered() -> None:
    public = {
        f"{module}.{name}"
        for module in LIBRARIES
        for name in importlib.import_module(module).__all__
        if {name, *dir(getattr(importlib.import_module(module), name))} & BEGINNINGS
    }

    assert public - {*WAITING, *ELSEWHERE, *ENDING, *PARTS} == set()
    assert {*PARTS.values()} <= {*WAITING, *ENDING}
    assert [test for test in ELSEWHERE.values() if not named_tests.exists(test)] == []
