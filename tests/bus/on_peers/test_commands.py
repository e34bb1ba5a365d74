"""`osrdyne bus ping` and `watch` against real peers: what they print, and how they end."""

from __future__ import annotations

import asyncio
import json
import os
import platform
import re
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

import steps
from osrdyne_bus import Target
from osrdyne_bus.aio import AsyncBusServer
from osrdyne_bus.endpoints import Endpoint
from osrdyne_bus.messages.wire import BusRequest
from testbed import proton
from testbed.command_line import CommandResult, osrdyne
from testbed.mesh.router import mesh
from testbed.tcp_proxy import TcpProxy
from testbed.waiting import PATIENCE_SECONDS, until_async
from tests.bus.on_peers.conformance import client
from tests.bus.on_peers.conftest import OpenBus
from tests.conftest import Vhost


def maps(**more: object) -> list[Endpoint]:
    made = Endpoint("maps", "1.2")
    made.add("find", lambda request: request.body)
    for name, handler in more.items():
        made.add(name, handler)  # type: ignore[arg-type]
    return [made]


async def bus(*words: str, uri: str) -> CommandResult:
    return await asyncio.to_thread(osrdyne, "bus", *words, variables={"OSRDYNE_BUS_URI": uri})


@pytest.mark.both_versions
async def test_ping_shows_the_peer_and_what_a_server_of_each_topic_does(
    open_bus: OpenBus, vhost: Vhost, broker_version: str
) -> None:
    far, hang = await open_bus(), asyncio.Event()
    seen: list[bytes] = []

    async def wait(request: BusRequest) -> None:
        seen.append(request.body)
        await hang.wait()

    async with (
        AsyncBusServer(far, Target("maps", server="n1"), maps(wait=wait), concurrency=7),
        AsyncBusServer(far, Target("roads", server="r"), []),
    ):
        await client(far).cast(Target("maps"), "wait")
        await until_async(lambda: len(seen) == 1)

        done = await bus("ping", "maps", "roads", uri=vhost.amqp_uri())
        document = await bus("ping", "maps", "--server", "n1", "--json", uri=vhost.amqp_uri())
        hang.set()

    assert done.code == 0, done
    first, second, third = done.out.decode().splitlines()
    assert f"(RabbitMQ {broker_version}" in first
    assert ", addressing rabbitmq) in " in first
    at = f"({platform.node()}, process {os.getpid()})"
    assert second.startswith(f"maps: n1 {at} in ")
    assert second.endswith(" ms: 1 of 7 handlers run, 0 requests wait; serves maps 1.2: find, wait")
    assert third.startswith(f"roads: r {at} in ")
    assert document.code == 0, document
    said = json.loads(document.out)
    assert said["addressing"] == "rabbitmq"
    assert said["seconds"] > 0
    (server,) = said["servers"]
    assert server.pop("seconds") > 0
    assert server == {
        "exchange": "osrdyne",
        "topic": "maps",
        "server": "n1",
        "host": platform.node(),
        "process": os.getpid(),
        "endpoints": ["maps 1.2: find, wait"],
        "waiting": 0,
        "running": 1,
        "concurrency": 7,
        "lost_replies": 0,
    }


async def test_ping_of_a_topic_without_a_server_says_so_and_ends_with_1(vhost: Vhost) -> None:
    done = await bus("ping", "maps", "--exchange", "flights", uri=vhost.amqp_uri())

    assert done.code == 1
    assert "maps of flights: no answer: " in done.out.decode().splitlines()[1]
    assert "no queue 'unicast.flights.maps': no server was ever there" in done.out.decode()


async def test_ping_asks_a_mesh_of_routers() -> None:
    routers = await mesh("AB", "AB")
    await until_async(lambda: all(router.reaches_all() for router in routers.values()))
    done = await bus("ping", "maps", "--timeout", "0.5", uri=f"amqp://127.0.0.1:{routers['A'].port}")
    for router in routers.values():
        router.kill()

    assert done.code == 1
    bus_line, server_line = done.out.decode().splitlines()
    assert bus_line.startswith("answer by way of ")
    assert ", addressing routable) in " in bus_line
    assert re.match(r"maps: no answer: within 0\.\d+ s the message ", server_line)


async def test_ping_says_that_a_router_has_fanouts_configured_as_what_reaches_one_server() -> None:
    routers = await mesh("A", "", prefixes={})
    uri = f"amqp://127.0.0.1:{routers['A'].port}"
    done, document = await bus("ping", uri=uri), await bus("ping", "--json", uri=uri)
    routers["A"].kill()

    assert (done.code, document.code) == (1, 1)
    bus_line, fanouts_line = done.out.decode().splitlines()
    assert bus_line.startswith("answer by way of ")
    assert fanouts_line.startswith("fanouts reach one server, and not all: 127.0.0.1:")
    assert "has their addresses as balanced; configure them as multicast" in fanouts_line
    assert json.loads(document.out)["fanouts"]["distribution"] == "balanced"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["ping", "--server", "n1"], "--server n1 is a server of which topic? give one"),
        (["ping", ""], "topic '': give it 1 to 128 bytes without NUL"),
        (
            ["ping", "--addressing", "x"],
            "there is no address scheme 'x'; there are dynamic, routable, brokered, rabbitmq",
        ),
        (["ping", "--ca-file", "/none.pem"], "a certificate or key cannot be read (/none.pem): "),
        (["ping"], "cannot connect to 127.0.0.1:"),
        (["watch"], "cannot connect to 127.0.0.1:"),
    ],
)
def test_what_cannot_be_asked_is_one_line_and_ends_with_2(words: list[str], said: str) -> None:
    done = osrdyne("bus", *words, variables={"OSRDYNE_BUS_URI": "amqp://u:secret@127.0.0.1:1"})

    assert done.code == 2
    assert said in done.line
    assert "secret" not in done.line
    with_json = osrdyne("bus", *words, "--json", variables={"OSRDYNE_BUS_URI": "amqp://127.0.0.1:1"})
    assert said in json.loads(with_json.out)["error"]


def test_a_wrong_password_is_said_and_not_shown(vhost: Vhost) -> None:
    uri = f"amqp://{vhost.broker.admin}:secret@127.0.0.1:{vhost.broker.amqp_port}"
    done = osrdyne("bus", "ping", variables={"OSRDYNE_BUS_URI": uri})

    assert done.code == 2
    assert "refused the login" in done.line
    assert "secret" not in done.line


async def test_watch_goes_on_asking_over_the_next_connection_until_ctrl_c(vhost: Vhost, tmp_path: Path) -> None:
    async with TcpProxy(vhost.broker.amqp_port) as proxy:
        uri = vhost.amqp_uri().replace(f":{vhost.broker.amqp_port}", f":{proxy.port}")
        (tmp_path / "uri").write_text(uri)
        words = ["bus", "watch", "--every", "0.2", "--json", "--broker-file", str(tmp_path / "uri")]
        watching = await asyncio.create_subprocess_exec(
            str(Path(sys.executable).parent / "osrdyne"),
            *words,
            stdout=asyncio.subprocess.PIPE,
            env=steps.environment(PYTHONPATH=str(proton.folder())),
        )
        lines = watching.stdout
        assert lines is not None

        async def rounds(connections: int) -> dict[str, Any]:
            async with asyncio.timeout(PATIENCE_SECONDS):
                async for line in lines:
                    found: dict[str, Any] = json.loads(line)
                    if found["connections"] == connections and "seconds" in found:
                        return found
            raise AssertionError("it ended")

        await rounds(1)
        proxy.cut()
        found = await rounds(2)
        watching.send_signal(signal.SIGINT)

        assert await watching.wait() == 0
        assert found["addressing"] == "rabbitmq"
