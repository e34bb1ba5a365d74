"""The broker source `container`: dev.yml on this machine, the broker in an engine's container."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.docker import Docker, container_name, engine
from testbed.management import Management
from tests.roles.local_setup import LocalSetup, changed


@pytest.fixture(scope="module")
def docker() -> Iterator[Docker]:
    with engine() as found:
        yield found


@pytest.fixture
def container(docker: Docker) -> Iterator[str]:
    """Name of a container and its volume, neither of which outlives the test."""
    name = container_name("rabbitmq")
    yield name
    if docker("ps", "--all", "--quiet", "--filter", f"name={name}").split():
        docker("rm", "--force", name)
    if docker("volume", "ls", "--quiet", "--filter", f"name={name}").split():
        docker("volume", "rm", name)


@pytest.fixture
def setup(docker: Docker, container: str, tmp_path: Path) -> Iterator[LocalSetup]:
    variables = {
        "rabbitmq_source": "container",
        "rabbitmq_image": docker.broker("4.3"),
        "rabbitmq_container": container,
    }
    made = LocalSetup(tmp_path / "pool", docker.environment, variables=variables)
    yield made
    made.close()


@pytest.mark.full
@pytest.mark.xdist_group("machines")
def test_a_pool_on_a_broker_in_a_container_runs_and_stops_and_comes_back_with_its_data(
    setup: LocalSetup, container: str, docker: Docker
) -> None:
    # When the playbook runs where an engine has the image
    setup.play("dev")
    # Then the pool answers, and the broker in the container has its queues
    assert setup.call("first", b"hello").body == b"HELLO"
    admin = Management(
        f"http://127.0.0.1:{setup.ports['management']}",
        "osrdyne-admin",
        (setup.directory / "broker/passwords/osrdyne-admin.password").read_text(),
    )
    assert admin.get("overview")["rabbitmq_version"].startswith("4.3")
    assert admin.queue("osrdyne", "airports-poison")
    # And another run has nothing left to do
    assert changed(setup.play("dev")) == 0
    # When a message waits and the pool is taken down
    admin.call("POST", "exchanges", "osrdyne", "amq.default", "publish", body=kept("airports-poison"))
    setup.play("down")
    # Then daemon and broker have ended
    assert docker("container", "inspect", "--format", "{{.State.Running}}", container).strip() == "false"
    # And what comes back has its data
    setup.play("dev")
    assert setup.call("first", b"again").body == b"AGAIN"
    assert admin.call("POST", "queues", "osrdyne", "airports-poison", "get", body=one())[0]["payload"] == "keep me"


def kept(queue: str) -> dict[str, object]:
    return {
        "routing_key": queue,
        "payload": "keep me",
        "payload_encoding": "string",
        "properties": {"delivery_mode": 2},
    }


def one() -> dict[str, object]:
    return {"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto"}
