"""The topology that the daemon reads is the one that pyrabbit2 reads, a client of the same API by others."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import quote

import pytest
from pyrabbit2.api import Client

from osrdyne.broker.management_api import ManagementApi
from osrdyne_pool.broker import management_json
from testbed.pool import Pool

pytestmark = pytest.mark.both_versions


async def test_the_topology_is_read_as_pyrabbit2_reads_it(make_pool: Callable[..., Pool]) -> None:
    pool = make_pool()
    broker, vhost = pool.broker, pool.vhost
    login = f"{quote(broker.admin)}:{quote(broker.admin_password)}"
    ours = await ManagementApi(broker.management_url.replace("://", f"://{login}@"), vhost).topology()

    peer = Client(broker.management_url.removeprefix("http://"), broker.admin, broker.admin_password)
    theirs = management_json.read(
        {
            "exchanges": peer.get_exchanges(vhost),
            "queues": peer.get_queues(vhost),
            "bindings": [binding for binding in peer.get_bindings() if binding["vhost"] == vhost],
            "policies": [policy for policy in peer.get_all_policies() if policy["vhost"] == vhost],
        }
    )

    for part in ("exchanges", "queues", "bindings", "policies"):
        assert getattr(theirs, part), part
        assert sorted(getattr(ours, part), key=repr) == sorted(getattr(theirs, part), key=repr), part
