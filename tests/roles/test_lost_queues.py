"""A static queue that the broker lost: the playbook fails with what to do, or makes it again where that is allowed."""

from __future__ import annotations

import dataclasses
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from osrdyne_pool.topology import Users
from testbed.lost_queue import is_lost, lose
from tests.conftest import Vhost
from tests.roles.local_setup import LocalSetup

# Three runs of the playbook take a minute and a half; the module alone is in test_topology_module.
pytestmark = [pytest.mark.full, pytest.mark.xdist_group("topology")]


@pytest.fixture
def setup(losing_vhost: Vhost, tmp_path: Path) -> Iterator[LocalSetup]:
    broker, instance = losing_vhost.broker, secrets.token_hex(4)
    variables = {"osrdyne_broker_management": broker.management_url, "osrdyne_instance": instance}
    made = LocalSetup(tmp_path / "pool", os.environ, broker=losing_vhost.amqp_uri(), variables=variables)
    yield made
    made.close()
    for name in dataclasses.astuple(Users.of("airports", instance)):
        broker.management.delete("users", name)


def test_the_playbook_fails_while_a_queue_is_lost_and_mends_it_where_that_is_allowed(
    setup: LocalSetup, losing_vhost: Vhost
) -> None:
    api, vhost = losing_vhost.broker.management, losing_vhost.name
    setup.play("dev")
    lose(losing_vhost.broker, vhost, "airports-poison")

    refused = setup.attempt("dev")

    assert refused.returncode
    assert "queue airports-poison: the broker lost it when it was killed" in refused.stdout
    assert "-e osrdyne_mend_lost_queues=true" in refused.stdout
    assert is_lost(api, vhost, "airports-poison")

    setup.play("dev", "-e", "osrdyne_mend_lost_queues=true")

    assert not is_lost(api, vhost, "airports-poison")
    assert setup.call("first", b"hello").body == b"HELLO"
