"""A bus logs the same three lines of an outage as all programs; see tests/faults/test_outage_lines.py."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from testbed.outages import Programs, moved
from testbed.waiting import until_async
from tests.conftest import Vhost

BUS = """
import asyncio, logging, os
from osrdyne_bus import Target
from osrdyne_bus.aio import AsyncBus, AsyncBusServer
from osrdyne_bus.endpoints import Endpoint
logging.basicConfig(format="%(message)s")
async def main():
    async with AsyncBus(os.environ["ADDRESS"]) as bus, AsyncBusServer(bus, Target("maps", server="a"), [Endpoint()]):
        print('open', flush=True)
        await asyncio.Event().wait()
asyncio.run(main())
"""


@pytest.mark.full
async def test_a_bus_logs_the_same_three_lines_of_an_outage(one_vhost: Vhost, tmp_path: Path) -> None:
    port = one_vhost.broker.amqp_port
    async with Programs(tmp_path) as programs:
        proxy = await programs.proxy(port)
        address = moved(one_vhost.broker.amqp_uri(vhost=one_vhost.name), port, proxy.port)
        await programs.start("bus", sys.executable, "-c", BUS, ADDRESS=address, PYTHONPATH=":".join(sys.path))
        await until_async(lambda: "open" in programs.logs["bus"].read_text())
        await programs.check_the_lines_of_an_outage()
