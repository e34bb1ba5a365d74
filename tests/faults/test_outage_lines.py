"""Every program logs the same three lines of what it cannot reach: broker, Redis, database, or node of the relay."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

import steps
from faults.rig import ProxiedPool
from osrdyne_protocol.worker_environment import WorkerEnvironment
from testbed.outages import Programs, moved
from testbed.peer import make_request_queue
from testbed.pool import DaemonProcess
from testbed.postgres import Postgres
from testbed.redis import RedisServer
from testbed.waiting import until_async
from tests.conftest import Vhost
from tests.relay.http_nodes import TOKENS, http_settings
from tests.relay.http_processes import NodeProcess

pytestmark = [pytest.mark.full, pytest.mark.timeout(900)]

#: Programs with our libraries. Each has its address in ADDRESS, and logs messages alone.
CLIENT = """
import asyncio, logging, os
from osrdyne_client import AsyncClient
logging.basicConfig(format="%(message)s")
async def main():
    async with AsyncClient(os.environ["ADDRESS"], "core"):
        print('open', flush=True)
        await asyncio.Event().wait()
asyncio.run(main())
"""
WORKER = """
import logging
from osrdyne_worker import run
logging.basicConfig(format="%(message)s")
run(lambda request: request.body)
"""
RELAY_WORKER = """
import logging, os
from osrdyne_relay.worker import RelayWorker
logging.basicConfig(format="%(message)s")
RelayWorker(os.environ["ADDRESS"], "maps/LAX", lambda request: request.body, token=os.environ["TOKEN"]).run()
"""


@pytest.fixture
async def programs(tmp_path: Path) -> AsyncIterator[Programs]:
    async with Programs(tmp_path) as made:
        yield made


@pytest.fixture
def pool(one_vhost: Vhost) -> Iterator[ProxiedPool]:
    made = ProxiedPool.on(one_vhost.broker, one_vhost.name)
    yield made
    made.remove_users()


@pytest.fixture
def postgres() -> Iterator[Postgres]:
    with Postgres() as server:
        yield server


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


async def test_every_program_says_the_same_three_lines_of_an_outage(
    programs: Programs, pool: ProxiedPool, postgres: Postgres, redis: RedisServer, tmp_path: Path
) -> None:
    # Given programs that reach what they need through proxies
    broker = await programs.proxy(pool.broker.amqp_port)
    pool.ports = dict.fromkeys(("daemon", "worker", "client"), broker.port)
    python, command = [sys.executable, "-c"], str(steps.BIN / "osrdyne")
    await programs.daemon(DaemonProcess.of(pool, tmp_path / "daemon", worker=["true"]))
    await make_request_queue(pool, "42")
    queue, exchange = pool.names.request_queue("42"), pool.names.activity_exchange
    worker = WorkerEnvironment("w", "42", "core", queue, exchange, pool.uri(pool.users.worker))
    await programs.start("worker", *python, WORKER, **worker.to_environ())
    await programs.start("client", *python, CLIENT, ADDRESS=pool.client_uri)
    direct = pool.broker.amqp_uri(vhost=pool.vhost)
    database = await programs.proxy(postgres.port)
    postgres.create_database("jobs")
    variables = {"OSRDYNE_JOBS_DATABASE": moved(postgres.url("jobs"), postgres.port, database.port)}
    await programs.run(command, "jobs", "migrate", **variables)
    await programs.start("redo", command, "jobs", "redo", "--pool", "core", OSRDYNE_CLIENT_URI=direct, **variables)
    store = await programs.proxy(redis.port)
    (tmp_path / "redis").write_text(moved(redis.address_file.read_text(), redis.port, store.port))
    node = NodeProcess(http_settings(redis, tmp_path, redis={"url_file": str(tmp_path / "redis")}), tmp_path)
    programs.keep("relay node", tmp_path / "node.log", node)
    url = await node.url()
    way = await programs.proxy(int(url.rpartition(":")[2]))
    address = f"http://127.0.0.1:{way.port}"
    await programs.start("relay worker", *python, RELAY_WORKER, ADDRESS=address, TOKEN=TOKENS["worker"])
    await until_async(lambda: "open" in programs.logs["client"].read_text())
    await until_async(
        lambda: broker.connections >= 3 and all(service.connections for service in (database, store, way))
    )
    # When all of it is away for more than a minute
    await programs.check_the_lines_of_an_outage()
