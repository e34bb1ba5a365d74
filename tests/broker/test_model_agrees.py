"""The model broker of the simulation answers short programs as real brokers of both versions do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from osrdyne_amqp import Connection
from osrdyne_pool.broker import quorum
from osrdyne_pool.broker.management import ManagementRefused
from simulation import virtual_time
from simulation.model.programs import ALL, FAULTY
from simulation.model.programs.model_bench import ModelBench
from testbed.broker import Broker
from tests.conftest import Vhost

pytestmark = pytest.mark.both_versions


class RealBench:
    """A virtual host of a real broker."""

    def __init__(self, vhost: Vhost) -> None:
        self.version = vhost.broker.version
        self._vhost = vhost
        self._api = vhost.broker.management
        self._connections: list[Connection] = []
        self._users: list[str] = []

    async def open(self, user: str = "") -> Connection:
        name = f"{user}-{self._vhost.name}" if user else None
        uri = self._vhost.amqp_uri(name, "x" if user else None)
        connection = await Connection.open(uri, name=f"program {len(self._connections)}")
        self._connections.append(connection)
        return connection

    async def _put(self, kind: str, *path: str, body: object) -> None:
        await asyncio.to_thread(self._api.put, kind, *path, body=body)

    async def exchange(self, name: str, kind: str = "direct") -> None:
        await self._put("exchanges", self._vhost.name, name, body={"type": kind, "durable": True})

    async def policy(self, name: str, pattern: str, apply_to: str, **definition: Any) -> None:
        named = {key.replace("_", "-"): value for key, value in definition.items()}
        body = {"pattern": pattern, "apply-to": apply_to, "definition": named, "priority": 10}
        await self._put("policies", self._vhost.name, name, body=body)

    async def no_policy(self, name: str) -> None:
        await asyncio.to_thread(self._api.delete, "policies", self._vhost.name, name)

    async def delete_queue(self, name: str) -> None:
        await asyncio.to_thread(self._api.delete, "queues", self._vhost.name, name)

    async def permit(self, user: str, configure: str, write: str, read: str) -> None:
        name = f"{user}-{self._vhost.name}"
        if name not in self._users:
            await self._put("users", name, body={"password": "x", "tags": ""})
            self._users.append(name)
        body = {"configure": configure, "write": write, "read": read}
        await self._put("permissions", self._vhost.name, name, body=body)

    async def totals(self, queue: str) -> tuple[int, int, int] | None:
        found = await asyncio.to_thread(self._api.queue, self._vhost.name, queue)
        if found is None or "messages_ready" not in found:
            return None
        return found["messages_ready"], found["messages_unacknowledged"], found["messages"]

    async def counted_queues(self) -> list[str]:
        rows = await asyncio.to_thread(self._api.get, "queues", self._vhost.name)
        return sorted(row["name"] for row in rows if "messages" in row)

    async def restart(self) -> None:
        await asyncio.to_thread(self._vhost.broker.restart)

    async def lose(self, queue: str) -> None:
        found = f'rabbit_misc:r(<<"{self._vhost.name}">>, queue, <<"{queue}">>)'
        await asyncio.to_thread(
            self._vhost.broker.rabbitmqctl,
            "eval",
            # What a start of the broker does with a queue that its register of quorum queues does not have.
            f"{{ok, Queue}} = rabbit_amqqueue:lookup({found}), {{Name, _}} = amqqueue:get_pid(Queue), "
            "ok = ra:force_delete_server(quorum_queues, {Name, node()}), "
            f'rabbit_quorum_queue:recover(<<"{self._vhost.name}">>, [Queue]).',
        )

    async def never_led(self, queue: str) -> bool | None:
        path = ("queues", "quorum", self._vhost.name, queue, "status")
        try:
            members = await asyncio.to_thread(self._api.get, *path)
        except ManagementRefused as error:
            if error.status == 404:
                return None
            raise
        return quorum.never_led(quorum.read(members))

    async def alarm(self, on: bool) -> None:
        limit = "0" if on else "0.6"
        await asyncio.to_thread(self._vhost.broker.rabbitmqctl, "set_vm_memory_high_watermark", limit)

    async def close(self) -> None:
        for connection in self._connections:
            await connection.close()
        for user in self._users:
            await asyncio.to_thread(self._api.delete, "users", user)


@pytest.fixture
async def real(vhost: Vhost) -> AsyncIterator[RealBench]:
    bench = RealBench(vhost)
    yield bench
    await bench.close()


@pytest.fixture
async def real_alone(private_broker: Broker) -> AsyncIterator[RealBench]:
    private_broker.management.add_vhost("alone", private_broker.admin)
    bench = RealBench(Vhost(private_broker, "alone"))
    yield bench
    await bench.close()


def on_model(program: Any, version: Any, seed: int) -> Any:
    async def run() -> Any:
        return await program(ModelBench(version, seed))

    return virtual_time.run(seed, run)


@pytest.mark.parametrize(
    # What waits for a lost queue takes its time on a real broker.
    "name",
    [pytest.param(name, marks=pytest.mark.full if "lost" in name else ()) for name in sorted(ALL)],
)
async def test_the_model_answers_as_the_broker_does(name: str, real: RealBench) -> None:
    seen = await ALL[name](real)

    for seed in range(3):
        modelled = await asyncio.to_thread(on_model, ALL[name], real.version, seed)
        assert modelled == seen


@pytest.mark.full
@pytest.mark.parametrize("name", sorted(FAULTY))
async def test_the_model_answers_as_a_broker_in_trouble_does(name: str, real_alone: RealBench) -> None:
    seen = await FAULTY[name](real_alone)

    for seed in range(3):
        assert await asyncio.to_thread(on_model, FAULTY[name], real_alone.version, seed) == seen
