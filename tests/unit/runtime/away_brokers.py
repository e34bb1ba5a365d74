"""Programs that are started while their broker is away. Behind them is the model broker, in virtual time."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from itertools import count
from typing import Any

from osrdyne import leader
from osrdyne.daemon import Daemon
from osrdyne.metrics import Metrics
from osrdyne_amqp import Connection
from osrdyne_amqp.errors import BrokerUnreachable
from osrdyne_pool.settings import PoolSettings
from osrdyne_pool.topology import Topology, Users, topology
from osrdyne_protocol.names import PoolNames
from osrdyne_protocol.worker_environment import WorkerEnvironment
from osrdyne_worker import serve
from simulation.model import ModelBroker
from simulation.model.management import ModelManagement
from simulation.world import daemon_settings
from tests.unit.runtime.away_at_start import AFTER_SECONDS, AWAY_SECONDS, PLACE, Rig, WaitingProgram

POOL, NAMES, USERS = PoolSettings("core"), PoolNames("core"), Users.of("core")
WORKER = f"amqp://{USERS.worker}:secret@{PLACE}/v"


def broker(rig: Rig, *, away: float = AWAY_SECONDS) -> ModelBroker:
    """Return a broker that programs reach after so many seconds."""
    made, numbers = ModelBroker(random.Random(1)), count()
    made.apply(topology(POOL, USERS))

    async def opened(uri: str, *, name: str, **options: Any) -> Connection:
        if made.loop.time() < away:
            raise BrokerUnreachable(f"amqp://{PLACE}: nothing listens there (connection refused)")
        return await made.open(uri, name=f"{name} {next(numbers)}", **options)

    rig.patch.setattr(Connection, "open", opened)
    return made


async def act(management: ModelManagement) -> None:
    """Have a daemon act."""
    live = management.topology

    async def whole(**options: Any) -> Topology:
        # The model has no limits of a virtual host.
        return replace(await live(**options), vhost_limits=topology(POOL).vhost_limits)

    management.topology = whole  # type: ignore[method-assign]
    daemon = Daemon(daemon_settings(POOL), Metrics())
    daemon._management = management
    daemon.open()
    acting = asyncio.create_task(daemon.act())
    await asyncio.sleep(AWAY_SECONDS + AFTER_SECONDS)
    acting.cancel()
    await asyncio.wait([acting])
    await daemon.close()


async def lead(rig: Rig) -> None:
    await act(broker(rig).management())


async def stand_by(rig: Rig) -> None:
    there = broker(rig)
    connection = await there.open(f"amqp://{USERS.daemon}:secret@{PLACE}/v", name="the leader")
    await leader.acquire(connection, NAMES)
    await act(there.management())


async def lead_without_management(rig: Rig, *, leads_for: float = 0.0) -> None:
    """Have a daemon lead whose management API goes away after so many seconds."""
    management = broker(rig, away=0.0).management()
    management.away = not leads_for
    for seconds, away in ((leads_for, True), (leads_for + AWAY_SECONDS, False)):
        asyncio.get_running_loop().call_later(seconds, setattr, management, "away", away)
    await act(management)


async def lead_and_lose_management(rig: Rig) -> None:
    await lead_without_management(rig, leads_for=10.0)


async def work(rig: Rig, *, away: float = AWAY_SECONDS, made_after: float = 0.0) -> None:
    """Have a worker serve, whose queue is made after so many seconds."""
    there = broker(rig, away=away)
    queue = NAMES.request_queue("42")
    environment = WorkerEnvironment("w", "42", POOL.name, queue, NAMES.activity_exchange, WORKER)
    stop = asyncio.Event()

    async def answer(_: object) -> bytes:
        return b""

    serving = asyncio.create_task(serve(answer, environment, stop))
    await asyncio.sleep(made_after)
    daemon = await there.open(f"amqp://{USERS.daemon}:secret@{PLACE}/v", name="the daemon")
    await (await daemon.channel()).declare_queue(queue, arguments={"x-queue-type": "quorum"})
    await asyncio.sleep(AWAY_SECONDS + AFTER_SECONDS - made_after)
    stop.set()
    await serving


async def work_before_the_queue_is_made(rig: Rig) -> None:
    await work(rig, away=0.0, made_after=AWAY_SECONDS)


BROKER, EVENTS = "the broker", "the exchange of activity events"
PROGRAMS = {
    "osrdyne daemon": WaitingProgram(lead, {BROKER}),
    "osrdyne daemon that stands by": WaitingProgram(stand_by, {BROKER}),
    "osrdyne daemon without the management API": WaitingProgram(
        lead_without_management, {BROKER}, "the-model-broker:15672"
    ),
    "osrdyne daemon whose management API goes away": WaitingProgram(
        lead_and_lose_management, {"the management API"}, "the-model-broker:15672"
    ),
    "osrdyne_worker.serve": WaitingProgram(work, {BROKER, EVENTS}),
    "osrdyne_worker.serve before the queue is made": WaitingProgram(
        work_before_the_queue_is_made, {"the request queue"}, NAMES.request_queue("42")
    ),
}
