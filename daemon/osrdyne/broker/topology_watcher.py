"""The topology watcher: compares the live broker with the declared topology, and reports what differs or is lost.

It repairs nothing: infrastructure code owns static objects. A finding is logged once, and counted.
"""

from __future__ import annotations

import asyncio
import logging

from osrdyne.broker.management_api import ManagementApi
from osrdyne.broker.static_queues import StaticQueues
from osrdyne.errors import ManagementError
from osrdyne.status.metrics import Metrics
from osrdyne_protocol.broker.drift import drift
from osrdyne_protocol.broker.lint import Finding
from osrdyne_protocol.broker.topology import topology
from osrdyne_protocol.settings import PoolSettings

log = logging.getLogger(__name__)


class TopologyWatcher:
    """Runs until cancelled. `interval` is the time between two comparisons, in seconds."""

    def __init__(
        self,
        pool: PoolSettings,
        management: ManagementApi,
        queues: StaticQueues,
        metrics: Metrics,
        *,
        interval: float,
    ) -> None:
        self._expected = topology(pool)
        self._management = management
        self._queues = queues
        self._metrics = metrics
        self._interval = interval
        self._reported: set[Finding] = set()

    async def run(self) -> None:
        while True:
            try:
                findings = set(drift(self._expected, await self._management.topology()))
            except ManagementError as error:
                log.warning("cannot compare the topology", extra={"reason": str(error)})
            else:
                for finding in findings - self._reported:
                    log.warning(
                        "topology differs from what is declared",
                        extra={"object": finding.object, "reason": finding.problem},
                    )
                self._reported = findings
                self._metrics.drift.set(len(findings))
            await self._queues.look()
            await asyncio.sleep(self._queues.pause(self._interval))
