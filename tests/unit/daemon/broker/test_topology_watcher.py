"""What the daemon logs about a topology that is not complete."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import Any

import pytest

from osrdyne.broker.management_api import ManagementApi
from osrdyne.broker.static_queues import StaticQueues
from osrdyne.broker.topology_watcher import watch_topology
from osrdyne.errors import ManagementError, SessionEnded
from osrdyne.metrics import Metrics
from osrdyne.session import DaemonSession
from osrdyne.settings.daemon import BrokerSettings, DaemonSettings
from osrdyne_pool.settings import PoolSettings
from osrdyne_pool.topology import Topology, topology
from osrdyne_runtime.outages import OutageLog
from tests.unit.stand_ins import NAMES, running, state_of

POOL = PoolSettings("core")
DECLARED = replace(topology(POOL), users=(), permissions=())
OF_EVENTS = (NAMES.activity_exchange, NAMES.activity_queue, NAMES.events_stream)
#: A pool of an earlier version has none of these, and no policy for its dead letters.
OF_PARKING = (NAMES.parked_exchange, NAMES.parked_queue)
OF_ROOMS = (NAMES.unanswered_queue, NAMES.waiting_queue)

pytestmark = pytest.mark.looptime


class Management(ManagementApi):
    """Lists a topology."""

    def __init__(self, live: Topology) -> None:
        self.live = live
        self.vhost = "osrdyne"
        self.outage = OutageLog(logging.getLogger("test"), "the management API")

    async def topology(self, *, with_users: bool = False) -> Topology:
        return self.live


class NothingLost(StaticQueues):
    def __init__(self) -> None:
        """Keep nothing: no queue is ever lost."""

    async def look(self) -> None:
        pass

    def pause(self, interval: float) -> float:
        return interval


def without(*names: str, bindings: bool = True) -> Topology:
    """The declared topology without these exchanges and queues, and without their bindings."""
    return replace(
        DECLARED,
        exchanges=tuple(exchange for exchange in DECLARED.exchanges if exchange.name not in names),
        queues=tuple(queue for queue in DECLARED.queues if queue.name not in names),
        bindings=tuple(
            binding for binding in DECLARED.bindings if not bindings or not {binding.exchange, binding.queue} & {*names}
        ),
    )


async def logged(live: Topology, caplog: pytest.LogCaptureFixture) -> dict[str, str]:
    """Return the reason that is logged for each object."""
    async with running(watch_topology(DECLARED, Management(live), NothingLost(), Metrics(), interval=60.0)):
        await asyncio.sleep(1)
    return {record.__dict__["object"]: record.__dict__["reason"] for record in caplog.records}


async def check(live: Topology) -> None:
    """Check a topology as a session does when it begins."""
    nothing: Any = None
    given: dict[str, Any] = {"amqp_uri": "amqp://b", "management_uri": "http://b"}
    driver: Any = {"kind": "noop"}
    settings = DaemonSettings(pool=POOL, broker=BrokerSettings(**given), driver=driver)
    session = DaemonSession(settings, state_of(), nothing, nothing, Management(live), nothing, nothing)
    await session._check_topology()


async def test_a_bound_stream_that_is_missing_is_late_or_lost_and_the_log_says_how_to_get_it_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    reasons = await logged(without(NAMES.events_stream, bindings=False), caplog)
    assert reasons.keys() == {"queue core-events"}
    assert "the broker has its bindings and does not list it: it has just started" in reasons["queue core-events"]
    assert "`rabbitmqctl eval " in reasons["queue core-events"]


async def test_a_topology_that_cannot_be_listed_is_an_outage_of_the_management_api(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    management = Management(DECLARED)

    async def refused(**_: Any) -> Topology:
        raise ManagementError("the user may not list policies")

    monkeypatch.setattr(management, "topology", refused)
    async with running(watch_topology(DECLARED, management, NothingLost(), Metrics(), interval=60.0)):
        await asyncio.sleep(1)
    assert [record.message for record in caplog.records] == ["the management API cannot be used; trying again"]


async def test_a_stream_that_was_deleted_is_to_be_applied_again(caplog: pytest.LogCaptureFixture) -> None:
    reasons = await logged(without(NAMES.events_stream), caplog)
    assert reasons["queue core-events"] == "is not on the broker; apply the topology"


async def test_a_session_begins_without_the_objects_of_events_and_on_a_pool_of_an_earlier_version() -> None:
    live = without(*OF_EVENTS, *OF_PARKING, *OF_ROOMS)
    later = (NAMES.parked_queue, NAMES.dead_letter_queue, *OF_ROOMS)
    await check(replace(live, policies=tuple(policy for policy in live.policies if policy.name not in later)))


@pytest.mark.parametrize(
    "name",
    [
        name
        for name in (*[exchange.name for exchange in DECLARED.exchanges], *[queue.name for queue in DECLARED.queues])
        if name not in (*OF_EVENTS, *OF_PARKING, *OF_ROOMS)
    ],
)
async def test_a_session_does_not_begin_without_an_object_that_requests_need(name: str) -> None:
    with pytest.raises(SessionEnded, match=f"{name}.* missing; apply it .pulumi up, or"):
        await check(without(name))
