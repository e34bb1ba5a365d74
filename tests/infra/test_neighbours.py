"""A pool in the virtual host that the stack does not have is said and not refused: this `up` may remove it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from osrdyne_infra import preflight
from osrdyne_infra.broker.live import Live
from osrdyne_pool.settings import PoolSettings
from osrdyne_pool.topology import topology
from tests.infra import declaring

CORE, OTHER = topology(PoolSettings("core")), topology(PoolSettings("other"))


@pytest.mark.fast
def test_a_pool_that_is_no_more_in_the_stack_is_warned_of_and_does_not_stop_it() -> None:
    chosen = declaring.settings(vhost="dev", kubernetes=None, workers=None, pools=[{"name": "core"}])
    declared = preflight.topologies(chosen)
    live = Live(replace(CORE, exchanges=(*CORE.exchanges, *OTHER.exchanges), queues=(*CORE.queues, *OTHER.queues)))

    preflight.check(chosen, declared, live)
    [said] = preflight.warnings(chosen, declared, live)

    assert said.startswith("pool other: shares the virtual host, and its limits do not count it")
