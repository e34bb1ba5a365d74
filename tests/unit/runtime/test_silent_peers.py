"""Commands and clients of a peer that is away, or that takes connections and says nothing: they end in their time.

A program that is stopped by SIGSTOP is like that, too: the kernel takes its connections. tests/broker/test_waits.py has
the client, the worker and what breaks on the way; tests/bus/on_peers/test_silent_peers.py has the bus.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Iterator
from typing import TypeVar

import pytest

from osrdyne_jobs.client import JobClient
from osrdyne_jobs.errors import NotRegistered
from osrdyne_jobs.job_types import JobType
from osrdyne_relay import NodeLost, NodesAway, RedisAway, Relay, RelaySettings
from osrdyne_relay.client import AsyncRelayClient, RelayClient
from osrdyne_relay.client.addresses import LOST_AFTER_TIMEOUT_SECONDS
from testbed.command_line import Done, osrdyne

T = TypeVar("T")

#: Seconds of the waits here, and those that a loaded machine may take more than it should. Without bounds it is 10.
SHORT, SLACK = 1.0, 4.0
AWAY, SILENT = "away", "silent"


async def in_time(work: Awaitable[T], timeout: float) -> T:
    """Wait for what may take its timeout, and a second."""
    async with asyncio.timeout(timeout + 1.0 + SLACK):
        return await work


async def run(*words: str, timeout: float, **variables: str) -> Done:
    return await in_time(asyncio.to_thread(osrdyne, *words, variables=variables), timeout)


@pytest.fixture(params=[AWAY, SILENT])
def port(request: pytest.FixtureRequest) -> Iterator[int]:
    """The port of a peer: nothing listens there, or what listens there says nothing."""
    with socket.socket() as peer:
        peer.bind(("127.0.0.1", 0))
        if request.param == SILENT:
            peer.listen()
        yield peer.getsockname()[1]


# --- commands -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words", [("list",), ("show", "1"), ("replay", "--all", "--yes"), ("bury", "1", "--audit", "/dev/null")]
)
async def test_a_command_on_the_inventory_ends_in_the_time_that_it_was_given(port: int, words: tuple[str, ...]) -> None:
    if "replay" in words:
        words = (*words, "--audit", "/dev/null")
    uri = f"amqp://user:password@127.0.0.1:{port}"
    given = ("--pool", "core", "--timeout", "1")
    done = await run("poison", *words, *given, timeout=SHORT, OSRDYNE_OPERATOR_URI=uri)
    assert (done.code, len(done.err.splitlines())) == (2, 1)
    assert "password" not in done.err


@pytest.mark.full
@pytest.mark.parametrize(
    "words", [("list",), ("show", "1"), ("cancel", "1"), ("delete", "1"), ("redo", "1"), ("migrate",)]
)
async def test_a_command_on_jobs_ends_when_the_database_may_not_take_longer(port: int, words: tuple[str, ...]) -> None:
    address = f"postgresql://user:password@127.0.0.1:{port}/jobs"
    done = await run("jobs", *words, timeout=10.0, OSRDYNE_JOBS_DATABASE=address)
    assert done.code == 2
    assert "password" not in done.err


# --- the relay ----------------------------------------------------------------------------------------------------


async def test_a_call_to_a_node_that_does_not_answer_ends_in_its_time(port: int) -> None:
    url = f"http://127.0.0.1:{port}"
    client = AsyncRelayClient(url, token="t")
    await client.__aenter__()
    with pytest.raises((NodesAway, NodeLost)):
        await in_time(client.call("e", b"", timeout=SHORT), SHORT + LOST_AFTER_TIMEOUT_SECONDS)
    await in_time(client.__aexit__(None, None, None), 0.0)
    threads = RelayClient(url, token="t")
    with pytest.raises((NodesAway, NodeLost)):
        await in_time(asyncio.to_thread(threads.call, "e", b"", timeout=SHORT), SHORT + LOST_AFTER_TIMEOUT_SECONDS)
    await in_time(asyncio.to_thread(threads.close), 0.0)


async def test_a_node_without_its_redis_says_so_in_time_and_ends_at_once(port: int) -> None:
    redis = {"url": f"redis://127.0.0.1:{port}", "connect_timeout": SHORT, "answer_timeout": SHORT}
    relay = Relay(RelaySettings.from_mapping({"redis": redis}))
    async with relay:
        with pytest.raises(RedisAway):
            await in_time(relay.ask_redis(), SHORT)
        await in_time(relay.close(), 0.0)


# --- jobs ---------------------------------------------------------------------------------------------------------


async def test_a_client_of_jobs_ends_in_its_time(port: int) -> None:
    jobs = JobClient(f"postgresql://user@127.0.0.1:{port}/jobs", [JobType("t")], timeout=2.0)
    with pytest.raises(NotRegistered):
        await in_time(asyncio.to_thread(jobs.submit, "t", "LAX", {}), 2.0)
    await in_time(asyncio.to_thread(jobs.close), 0.0)
