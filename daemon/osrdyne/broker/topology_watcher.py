"""The topology watcher: compares the live broker with the declared topology, and reports what differs or is lost.

It repairs nothing: infrastructure code owns static objects. A finding is logged once, and counted.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

from osrdyne.broker.management_api import ManagementApi
from osrdyne.broker.static_queues import StaticQueues
from osrdyne.errors import ManagementError
from osrdyne.metrics import Metrics
from osrdyne_pool.broker import lost
from osrdyne_pool.drift import drift
from osrdyne_pool.lint import Finding
from osrdyne_pool.topology import Topology

log = logging.getLogger(__name__)


async def watch_topology(
    expected: Topology, management: ManagementApi, queues: StaticQueues, metrics: Metrics, *, interval: float
) -> None:
    """Run until cancelled. `interval` is the time between two comparisons, in seconds."""
    reported: set[Finding] = set()
    while True:
        try:
            findings = _findings(expected, await management.topology(), management.vhost)
        except ManagementError as error:
            # The queue watcher asks more often, and notes the end of an outage.
            management.outage.failed(str(error), asyncio.get_running_loop().time())
        else:
            for finding in findings - reported:
                log.warning(
                    "topology differs from what is declared",
                    extra={"object": finding.object, "reason": finding.problem},
                )
            reported = findings
            metrics.drift.set(len(findings))
        await queues.look()
        await asyncio.sleep(queues.pause(interval))


def _findings(expected: Topology, live: Topology, vhost: str) -> set[Finding]:
    """Return what differs. A stream that is lost is not mended by applying the topology, so its text is another."""
    problems = {f"queue {name}": lost.stream_problem(vhost, name) for name in lost.lost_streams(expected, live)}
    return {
        replace(difference, problem=problems.get(difference.object, difference.problem))
        for difference in drift(expected, live)
    }
