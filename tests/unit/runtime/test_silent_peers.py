"""Commands and clients of a peer that is away, or that takes connections and says nothing: they end in their time.

A program that is stopped by SIGSTOP is like that, too: the kernel takes its connections. tests/broker/test_waits.py has
the client, the worker and what breaks on the way; tests/bus/on_peers/test_silent_peers.py has the bus.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest

import steps
from osrdyne.commands import status
from osrdyne_calls.closing import CLOSE_SECONDS
from osrdyne_client import AsyncClient, Client
from osrdyne_jobs.client import AsyncJobClient, JobClient
from osrdyne_jobs.commands import create
from osrdyne_jobs.errors import NotRegistered
from osrdyne_jobs.job_types import JobType
from osrdyne_jobs.waiting import STOP_SECONDS
from osrdyne_pipeline.source import consumer
from osrdyne_pipeline.source.consumer import LAST_SECONDS
from osrdyne_pipeline.store import lake, objects
from osrdyne_protocol.worker_environment import WorkerEnvironment
from osrdyne_relay import NodeLost, NodesAway, RedisAway, Relay, RelaySettings
from osrdyne_relay.client import AsyncRelayClient, RelayClient
from osrdyne_relay.client.addresses import LOST_AFTER_TIMEOUT_SECONDS
from testbed.in_time import in_time, seconds_of
from testbed.waiting import hears, until_in_thread
from tests.unit.command.every_command import COMMANDS
from tests.unit.repo import named_tests
from tests.unit.runtime import every_wait
from tests.unit.runtime.commands_on_peers import (
    BROKER,
    SHORT_SECONDS,
    TYPES,
    WAITS,
    Addresses,
    run_in_time,
    write_files,
)

AWAY, SILENT = "away", "silent"


@pytest.fixture(params=[AWAY, SILENT])
def port(request: pytest.FixtureRequest) -> Iterator[int]:
    """The port of a peer: nothing listens there, or what listens there says nothing."""
    with socket.socket() as peer:
        peer.bind(("127.0.0.1", 0))
        if request.param == SILENT:
            peer.listen()
        yield peer.getsockname()[1]


@pytest.fixture
def silent() -> Iterator[int]:
    """The port of a peer that says nothing."""
    with socket.socket() as peer:
        peer.bind(("127.0.0.1", 0))
        peer.listen()
        yield peer.getsockname()[1]


# --- commands -----------------------------------------------------------------------------------------------------


#: Those that open the same store as `pipeline tables`.
LIKE_TABLES = (
    *("pipeline ingest (store)", "pipeline run (store)", "pipeline recommend", "pipeline report"),
    *("pipeline bill", "pipeline forget"),
)


@pytest.fixture
def at(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the files of a pool, whose broker and database are the peer of the test."""
    port = request.getfixturevalue("port" if "port" in request.fixturenames else "silent")
    monkeypatch.chdir(tmp_path)
    write_files(tmp_path, Addresses.at(port))
    return tmp_path


@pytest.mark.parametrize(
    "command", [pytest.param(name, marks=pytest.mark.full if name in LIKE_TABLES else ()) for name in WAITS]
)
async def test_a_command_ends_in_the_time_that_it_was_given(
    command: str, port: int, at: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # These have no option for it.
    monkeypatch.setattr(status, "TIMEOUT_SECONDS", SHORT_SECONDS)
    monkeypatch.setattr(consumer, "CONNECT_SECONDS", SHORT_SECONDS)
    monkeypatch.setattr(create, "CAST_TIMEOUT_SECONDS", SHORT_SECONDS)
    for module in (objects, lake):
        monkeypatch.setattr(module, "TRIED", timedelta(seconds=SHORT_SECONDS))
    waits = WAITS[command]

    done = await run_in_time(command, at, Addresses.at(port), waits.seconds)

    assert done.code == waits.code, done
    line = done.line if waits.code else done.out.decode()
    assert f"127.0.0.1:{port}" in line
    assert re.search(waits.says, line), line
    assert "password" not in done.err


# --- programs that wait -------------------------------------------------------------------------------------------

WORKER = "from osrdyne_worker import run; run(print, grace=0)"
JOB_WORKER = """
import pathlib
from osrdyne_jobs import JobType, JobWorker
JobWorker(pathlib.Path("database").read_text(), {JobType("routes"): print}).run(grace=0)
"""
RELAY_WORKER = """
from osrdyne_relay.worker import RelayWorker
RelayWorker("http://127.0.0.1:PORT", "maps/LAX", print, token="t", grace=0.0).run()
"""
#: By name: the words of its command line, or its program, and for how long it ends what is under way, in seconds.
PROGRAMS: dict[str, tuple[str, float]] = {
    "daemon": ("daemon --settings settings.toml", CLOSE_SECONDS),
    "jobs redo": ("jobs redo --pool core --database-file database", STOP_SECONDS),
    "jobs serve": ("jobs serve --port 0 --pool core --database-file database", STOP_SECONDS),
    "relay serve": ("relay serve --settings relay.toml", CLOSE_SECONDS),
    "pipeline ingest": ("pipeline ingest --pool core --lake lake --follow", LAST_SECONDS),
    "osrdyne_worker.run": (WORKER, CLOSE_SECONDS),
    "osrdyne_jobs.JobWorker": (JOB_WORKER, STOP_SECONDS),
    "osrdyne_relay.worker.RelayWorker": (RELAY_WORKER, CLOSE_SECONDS),
}


@pytest.mark.parametrize("name", PROGRAMS)
async def test_a_program_that_waits_for_a_silent_peer_ends_when_it_is_asked_to(
    name: str, silent: int, at: Path, request: pytest.FixtureRequest
) -> None:
    text, seconds = PROGRAMS[name]
    program = [str(steps.BIN / "osrdyne"), *text.split()] if text.startswith(name) else [sys.executable, "-c", text]
    amqp = Addresses.at(silent).broker
    key = WorkerEnvironment("w", "42", "core", "core-req-42", "core-activity", amqp).to_environ()
    variables = Addresses.at(silent).of(BROKER) | key | {"PATH": os.environ["PATH"]}
    with (at / "log").open("w") as log:
        process = subprocess.Popen(  # noqa: ASYNC220
            [word.replace("PORT", str(silent)) for word in program], cwd=at, env=variables, stdout=log, stderr=log
        )
    request.addfinalizer(process.wait)
    request.addfinalizer(process.kill)

    def waits() -> bool:
        assert process.poll() is None, (at / "log").read_text()
        return hears(process.pid) and is_connected(process.pid, silent)

    await until_in_thread(waits)
    process.send_signal(signal.SIGTERM)
    alone = await asyncio.to_thread(seconds_of, lambda: subprocess.run([sys.executable, "-c", ""], check=True))
    await in_time(asyncio.to_thread(process.wait), seconds, alone=alone)
    assert process.returncode == 0, (at / "log").read_text()
    assert "password" not in (at / "log").read_text()


def is_connected(process: int, port: int) -> bool:
    connections = psutil.Process(process).net_connections("tcp4")
    return port in [connection.raddr.port for connection in connections if len(connection.raddr)]


def test_each_command_has_a_test_of_its_waits_or_is_alone() -> None:
    assert {*every_wait.COMMANDS} & {*every_wait.COMMANDS_ALONE} == set()
    assert {*every_wait.COMMANDS, *every_wait.COMMANDS_ALONE} == {*COMMANDS}
    assert {name for name, test in every_wait.COMMANDS.items() if test == every_wait.COMMAND} == {
        name.partition(" (")[0] for name in WAITS
    }
    assert [test for test in every_wait.COMMANDS.values() if not named_tests.exists(test)] == []


# --- the relay ----------------------------------------------------------------------------------------------------


async def test_a_call_to_a_node_that_does_not_answer_ends_in_its_time(port: int) -> None:
    url = f"http://127.0.0.1:{port}"
    client = AsyncRelayClient(url, token="t")
    await client.__aenter__()
    with pytest.raises((NodesAway, NodeLost)):
        await in_time(client.call("e", b"", timeout=SHORT_SECONDS), SHORT_SECONDS + LOST_AFTER_TIMEOUT_SECONDS)
    await in_time(client.__aexit__(None, None, None), CLOSE_SECONDS)
    threads = RelayClient(url, token="t")
    with pytest.raises((NodesAway, NodeLost)):
        await in_time(
            asyncio.to_thread(threads.call, "e", b"", timeout=SHORT_SECONDS), SHORT_SECONDS + LOST_AFTER_TIMEOUT_SECONDS
        )
    await in_time(asyncio.to_thread(threads.close), CLOSE_SECONDS)


async def test_a_node_without_its_redis_says_so_in_time_and_ends_at_once(port: int) -> None:
    redis = {"url": f"redis://127.0.0.1:{port}", "connect_timeout": SHORT_SECONDS, "answer_timeout": SHORT_SECONDS}
    relay = Relay(RelaySettings.from_mapping({"redis": redis}))
    async with relay:
        with pytest.raises(RedisAway):
            await in_time(relay.ask_redis(), SHORT_SECONDS)
        await in_time(relay.close(), CLOSE_SECONDS)


# --- jobs ---------------------------------------------------------------------------------------------------------


async def test_a_client_of_jobs_ends_in_its_time(port: int) -> None:
    jobs = JobClient(f"postgresql://user@127.0.0.1:{port}/jobs", [JobType("t")], timeout=2.0)
    with pytest.raises(NotRegistered):
        await in_time(asyncio.to_thread(jobs.submit, "t", "LAX", {}), 2.0)
    await in_time(asyncio.to_thread(jobs.close), CLOSE_SECONDS)


# --- all of them --------------------------------------------------------------------------------------------------


def test_each_public_method_has_a_test_of_its_waits_or_is_alone() -> None:
    known = {*every_wait.METHODS, *every_wait.METHODS_ALONE}
    found = every_wait.public(*every_wait.LIBRARIES)

    assert {name for name in found if not {name, name.rpartition(".")[0]} & known} == set()
    assert {name for name in known if not any(f"{other}.".startswith(f"{name}.") for other in found)} == set()
    assert [test for test in every_wait.METHODS.values() if not named_tests.exists(test)] == []


#: By class: what makes one whose peer says nothing.
CLOSING: dict[str, Callable[[int], Any]] = {
    "osrdyne_client.AsyncClient": lambda port: AsyncClient(f"amqp://127.0.0.1:{port}", "core"),
    "osrdyne_client.Client": lambda port: Client(f"amqp://127.0.0.1:{port}", "core"),
    "osrdyne_jobs.AsyncJobClient": lambda port: AsyncJobClient(
        f"postgresql://u@127.0.0.1:{port}/jobs", TYPES, timeout=2.0
    ),
    "osrdyne_jobs.JobClient": lambda port: JobClient(f"postgresql://u@127.0.0.1:{port}/jobs", TYPES, timeout=2.0),
    "osrdyne_relay.Relay": lambda port: Relay(
        RelaySettings.from_mapping({"redis": {"url": f"redis://127.0.0.1:{port}"}})
    ),
    "osrdyne_relay.client.AsyncRelayClient": lambda port: AsyncRelayClient(f"http://127.0.0.1:{port}", token="t"),
    "osrdyne_relay.client.RelayClient": lambda port: RelayClient(f"http://127.0.0.1:{port}", token="t"),
}
#: What each is doing when it is closed: it waits for its peer.
ASKS: dict[str, Callable[[Any], Any]] = {
    "osrdyne_client.AsyncClient": lambda client: client.open(),
    "osrdyne_client.Client": lambda client: client.open(),
    "osrdyne_jobs.AsyncJobClient": lambda jobs: jobs.submit("routes", "r", {}),
    "osrdyne_jobs.JobClient": lambda jobs: jobs.submit("routes", "r", {}),
    "osrdyne_relay.Relay": lambda relay: relay.queue_and_wait("e", b""),
    "osrdyne_relay.client.AsyncRelayClient": lambda client: client.call("e", b"", timeout=SHORT_SECONDS),
    "osrdyne_relay.client.RelayClient": lambda client: client.call("e", b"", timeout=SHORT_SECONDS),
}
#: Classes whose end another test has, and the test.
CLOSED_ELSEWHERE = {
    "osrdyne_amqp.Channel": every_wait.CHANNEL,
    "osrdyne_amqp.Connection": every_wait.CHANNEL,
    "osrdyne_jobs.JobWorker": every_wait.METHODS["osrdyne_jobs.JobWorker.close"],
}
#: Those whose end asks nothing of a peer: `every_wait.METHODS_ALONE` says why.
CLOSED_ALONE = {"osrdyne_relay.Call", "osrdyne_relay.Response", "osrdyne_relay.client.BlockingResponse"}


@pytest.mark.parametrize("name", CLOSING)
async def test_every_close_takes_a_second_at_most(name: str, silent: int) -> None:
    thing = CLOSING[name](silent)
    if name in ("osrdyne_relay.Relay", "osrdyne_relay.client.AsyncRelayClient"):
        await thing.__aenter__()
    asks = ASKS[name]
    is_async = hasattr(thing, "__aexit__")
    asking = asyncio.ensure_future(asks(thing)) if is_async else asyncio.ensure_future(asyncio.to_thread(asks, thing))
    await until_in_thread(lambda: is_connected(os.getpid(), silent))

    await in_time(thing.__aexit__(None, None, None) if is_async else asyncio.to_thread(thing.close), CLOSE_SECONDS)

    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)


def test_each_public_class_with_an_end_has_a_test_of_it() -> None:
    found = {name.rpartition(".")[0] for name in every_wait.public(*every_wait.LIBRARIES) if ends(name)}

    assert found == {*CLOSING, *CLOSED_ELSEWHERE, *CLOSED_ALONE}
    assert [test for test in CLOSED_ELSEWHERE.values() if not named_tests.exists(test)] == []


def ends(name: str) -> bool:
    return name.rpartition(".")[2] in ("close", "__aexit__", "__exit__")
