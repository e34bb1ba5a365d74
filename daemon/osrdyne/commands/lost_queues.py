"""The rule `lost` of `osrdyne lint --live`: queues that the broker lost. Read only.

It reads the members of every static quorum queue, and of the request queues that the broker lists without counts: a
lost one never has counts, and a new one has none for some seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from osrdyne.broker.management_api import ManagementApi, never_led
from osrdyne_pool.broker import lost
from osrdyne_pool.broker.lost import Evidence
from osrdyne_pool.lint import Finding
from osrdyne_pool.topology import Topology
from osrdyne_protocol.names import PoolNames

#: Most request queues that are checked. A broker that has just started has no counts at all.
MOST_ASKED = 100


async def findings(api: ManagementApi, expected: Topology, live: Topology) -> list[Finding]:
    """Return a finding for each lost queue of a pool. Takes `LOOK_AGAIN_SECONDS` where one may be lost."""
    static = lost.static_quorum_queues(expected)
    listed = await api.request_queues(PoolNames(expected.pool))
    uncounted = [queue.name for queue in listed if queue.key is not None and queue.totals is None]
    evidence = await _look(api, [*static, *uncounted[:MOST_ASKED]], Evidence())
    if evidence.suspects:
        await asyncio.sleep(lost.LOOK_AGAIN_SECONDS)
        evidence = await _look(api, evidence.suspects, evidence)
    return _findings(api.vhost, expected, live, evidence.lost, len(uncounted) - MOST_ASKED)


async def _look(api: ManagementApi, queues: Iterable[str], before: Evidence) -> Evidence:
    names = list(queues)
    looks = zip(names, await asyncio.gather(*(never_led(api, name) for name in names)), strict=True)
    known = {name: found for name, found in looks if found is not None}
    return before.after(known, asyncio.get_running_loop().time())


def _findings(vhost: str, expected: Topology, live: Topology, found: frozenset[str], not_asked: int) -> list[Finding]:
    problems = lost.problems(expected, vhost)
    made = [
        Finding("lost", f"queue {name}", problems.get(name) or lost.request_queue_problem(vhost, name))
        for name in (*sorted(found), *lost.lost_streams(expected, live))
    ]
    if not_asked > 0:
        problem = "are listed without counts and were not asked whether they are lost; run this again in a minute"
        made.append(Finding("lost", f"{not_asked} more request queues", problem))
    return made
