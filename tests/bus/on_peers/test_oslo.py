"""The example of oslo.messaging: its callers reach our server, and we reach its servers, over a router."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

import steps
from testbed import oslo, proton
from testbed.mesh.router import mesh
from testbed.mesh.routing import MULTICAST
from testbed.waiting import PATIENCE_SECONDS

#: The driver leaves threads behind, and its parts are deprecated.
ENVIRONMENT = {"PYTHONPATH": f"{proton.folder()}:{oslo.folder()}:lab", "PYTHONWARNINGS": "ignore"}


@pytest.fixture
async def address() -> AsyncIterator[str]:
    prefixes = {"openstack.org/om/rpc/multicast": MULTICAST}
    routers = await mesh("A", "", prefixes=prefixes)
    yield f"amqp://127.0.0.1:{routers['A'].port}"
    routers["A"].kill()


@asynccontextmanager
async def running(module: str, *words: str) -> AsyncIterator[asyncio.subprocess.Process]:
    made = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        module,
        *words,
        cwd=steps.ROOT,
        env=steps.environment(**ENVIRONMENT),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield made
    finally:
        if made.returncode is None:
            made.kill()
        await made.communicate()


async def said(module: str, *words: str) -> str:
    """Run a program, and return what it prints, or what it says of an error."""
    async with running(module, *words) as made, asyncio.timeout(PATIENCE_SECONDS):
        out, error = await made.communicate()
    return (out if made.returncode == 0 else error).decode().strip()


async def ready(made: asyncio.subprocess.Process) -> None:
    assert made.stdout is not None
    async with asyncio.timeout(PATIENCE_SECONDS):
        assert await made.stdout.readline() == b"ready\n"


async def test_a_caller_of_oslo_messaging_gets_the_answer_of_our_server_and_its_error(address: str) -> None:
    async with running("examples.oslo_bus", address, "serve", "maps", "n") as server:
        await ready(server)
        assert await said("testbed.oslo_caller", address, "maps", "find", "name=Orly") == "the map of Orly"
        failure = await said("testbed.oslo_caller", address, "maps", "lose", "name=Orly")
    assert failure.startswith("KeyError: ")
    assert "lose" in failure


async def test_we_get_the_answer_of_a_server_of_oslo_messaging_and_its_error(address: str) -> None:
    async with running("testbed.oslo_server", address, "maps", "n") as server:
        await ready(server)
        assert await said("examples.oslo_bus", address, "call", "maps", "find", "name=Orly") == '"the map of Orly"'
        assert "LookupError: no such map" in await said("examples.oslo_bus", address, "call", "maps", "fail")
