"""The program warns of a broker whose user guest has the password guest, and changes nothing because of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from osrdyne_infra import preflight
from osrdyne_infra.broker.live import Live
from osrdyne_pool.settings import PoolSettings
from osrdyne_pool.topology import topology
from tests.infra import declaring
from tests.infra.conftest import Stack

CORE = topology(PoolSettings("core"))


@pytest.mark.fast
def test_a_broker_with_the_default_login_is_warned_of_and_not_refused() -> None:
    chosen = declaring.settings(vhost="dev", kubernetes=None, workers=None, pools=[{"name": "core"}])
    live = Live(replace(CORE, default_login="user guest has the password guest"))

    preflight.check(chosen, preflight.topologies(chosen), live)
    [said] = preflight.warnings(chosen, (), live)

    assert said == f"on the broker at {chosen.broker.management}, user guest has the password guest"
    assert preflight.warnings(chosen, (), Live(CORE)) == []


def test_a_preview_warns_of_the_default_login_and_an_up_leaves_it(newest: Stack) -> None:
    newest.broker.management.put("users", "guest", body={"password": "guest", "tags": "administrator"})
    try:
        done = newest.preview()
        newest.must_up()
        left = newest.broker.management.get("users", "guest")
    finally:
        newest.broker.management.delete("users", "guest")

    assert "warning" in done.text
    assert "user guest has the password guest" in done.text
    assert left["name"] == "guest"
