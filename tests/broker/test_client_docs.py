"""The code of docs/howto/client.md and worker.md, of the libraries' READMEs, and the examples, run as they stand."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from osrdyne_protocol.worker_environment import WorkerEnvironment
from testbed.peer import make_request_queue
from testbed.pool import Pool
from testbed.waiting import PATIENCE_SECONDS

ROOT = Path(__file__).parents[2]
PYTHON = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(page: str) -> list[str]:
    return PYTHON.findall((ROOT / page).read_text())


@pytest.fixture
def pool(make_pool: Callable[..., Pool]) -> Pool:
    return make_pool()


async def start(*arguments: str, **variables: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        *arguments,
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], **variables},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def output(process: asyncio.subprocess.Process) -> str:
    out, err = await asyncio.wait_for(process.communicate(), PATIENCE_SECONDS)
    assert process.returncode == 0, err.decode()
    return out.decode()


async def test_the_pages_and_examples_work_together(pool: Pool) -> None:
    await make_request_queue(pool, "42")
    queue, exchange = pool.names.request_queue("42"), pool.names.activity_exchange
    environment = WorkerEnvironment("w", "42", pool.settings.name, queue, exchange, pool.uri(pool.users.worker))
    # Given the worker of the page
    code, hearing_of_the_stop, while_loading = blocks("docs/howto/worker.md")
    assert while_loading.startswith("signal.signal(signal.SIGTERM")
    worker = await start("-c", code, **environment.to_environ())
    # When the clients of the page ask it
    sync_code, asyncio_code = blocks("docs/howto/client.md")
    assert await output(await start("-c", sync_code, AMQP_URI=pool.client_uri)) == "ok 42: hello\n"
    assert await output(await start("-c", asyncio_code, AMQP_URI=pool.client_uri)) == "100 answers\n42: later\n"
    worker.send_signal(signal.SIGTERM)
    await output(worker)
    # And the same worker with the option of the page hears that it stops
    hearing = code.replace("run(handle)\n", f"{hearing_of_the_stop}print(stopping.is_set())\n")
    worker = await start("-c", hearing, **environment.to_environ())
    assert await output(await start("-c", sync_code, AMQP_URI=pool.client_uri)) == "ok 42: hello\n"
    worker.send_signal(signal.SIGTERM)
    assert await output(worker) == "True\n"
    # And the examples ask each other
    worker = await start("-m", "examples.echo_worker", **environment.to_environ())
    asked = await start("-m", "examples.ask", pool.settings.name, "42", "hello", AMQP_URI=pool.client_uri)
    assert await output(asked) == "HELLO\n"
    worker.send_signal(signal.SIGTERM)
    await output(worker)


async def test_the_readmes_of_the_libraries_work_together(pool: Pool) -> None:
    await make_request_queue(pool, "42")
    queue, exchange = pool.names.request_queue("42"), pool.names.activity_exchange
    environment = WorkerEnvironment("w", "42", pool.settings.name, queue, exchange, pool.uri(pool.users.worker))
    (worker_code,), (client_code,), (amqp_code,), (protocol_code,), (pool_code,) = (
        blocks(f"packages/{name}/README.md") for name in ("worker", "client", "amqp", "protocol", "pool")
    )
    worker = await start("-c", worker_code, **environment.to_environ())
    assert await output(await start("-c", client_code, AMQP_URI=pool.client_uri)) == "42: hello\n"
    worker.send_signal(signal.SIGTERM)
    await output(worker)
    # The default exchange, to which this example publishes, is closed to the pool's client.
    administrator = pool.broker.amqp_uri(vhost=pool.vhost)
    assert (await output(await start("-c", amqp_code, AMQP_URI=administrator))).startswith("not routed: ")
    assert await output(await start("-c", protocol_code)) == f"{pool.names.request_queue('42')}\n"
    assert pool.names.request_exchange in (await output(await start("-c", pool_code))).splitlines()


async def test_the_example_client_says_in_one_line_what_is_wrong(pool: Pool) -> None:
    uri = pool.broker.amqp_uri(pool.users.client, "secret-3", pool.vhost)
    asked = await start("-m", "examples.ask", pool.settings.name, "42", "hello", AMQP_URI=uri)
    _, errors = await asked.communicate()
    assert asked.returncode == 1
    assert b"check user name and password" in errors
    assert b"secret-3" not in errors
    assert errors.count(b"\n") == 1
