"""The whole daemon with workers in containers: real requests through a real broker."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from osrdyne.drivers.docker.template import KEY, POOL
from testbed.foreign_client import ForeignClient
from testbed.pool import Pool
from testbed.waiting import until
from tests.conftest import Vhost
from tests.drivers.subjects.docker import DockerSubject
from tests.drivers.subjects.docker_pool import ContainerPool

pytestmark = [pytest.mark.xdist_group("docker"), pytest.mark.full]

Make = Callable[..., tuple[ContainerPool, ForeignClient]]


@pytest.fixture
def make(dockerd: DockerSubject, one_vhost: Vhost, tmp_path: Path) -> Iterator[Make]:
    """Makes the pool, with other settings, and a client."""
    made: list[tuple[ContainerPool, ForeignClient]] = []

    def of(**settings: Any) -> tuple[ContainerPool, ForeignClient]:
        pool = Pool.on(one_vhost.broker, one_vhost.name, name=dockerd.pool, instance="one", **settings)
        client = ForeignClient(pool.client_uri, pool.names.request_exchange)
        made.append((ContainerPool(dockerd, pool, tmp_path), client))
        return made[-1]

    yield of
    for containers, client in made:
        client.close()
        containers.close()


def ids(dockerd: DockerSubject, key: str) -> list[str]:
    """Returns the ids of a key's containers, whatever their state."""
    labels = (f"{POOL}={dockerd.pool}", f"{KEY}={key}")
    filters = [word for label in labels for word in ("--filter", f"label={label}")]
    return dockerd.docker("ps", "--all", "--quiet", "--no-trunc", *filters).split()


async def test_a_cold_start_is_answered_by_a_container_that_outlives_the_daemon(
    dockerd: DockerSubject, make: Make
) -> None:
    pool, client = make()
    # Given a key that no worker serves
    daemon = pool.daemon()
    assert client.ask("LAX", b"hello").body == b"LAX|hello"
    [served_by] = ids(dockerd, "LAX")
    before = await dockerd.workers("LAX")
    # When the daemon is followed by another, after SIGKILL
    daemon.stop(9)
    daemon = pool.daemon()
    # Then the same worker answers, and another key is a cold start still
    assert client.ask("LAX", b"again").body == b"LAX|again"
    assert ids(dockerd, "LAX") == [served_by]
    assert await dockerd.workers("LAX") == before
    assert client.ask("é/ 50%", b"hello").body == "é/ 50%|hello".encode()
    found = daemon.key("LAX")
    assert found is not None
    assert (found["state"], found["workers"]) == ("ready", 1)


async def test_a_changed_template_rolls_a_group_after_the_request_in_hand(dockerd: DockerSubject, make: Make) -> None:
    # Given a group with a request in hand
    pool, client = make()
    daemon = pool.daemon()
    client.ask("LAX")
    [before] = ids(dockerd, "LAX")
    busy = client.send("LAX", b"sleep 4")
    until(lambda: pool.pool.depth(pool.pool.names.request_queue("LAX")) == 1)
    # When the template changes
    daemon.stop()
    pool.declare(Labels={"version": "2"})
    pool.daemon()
    # Then that request is answered once, by the worker that had it, and the next by another
    assert client.wait(busy)[0].body == b"LAX|sleep 4"
    until(lambda: before not in ids(dockerd, "LAX") and ids(dockerd, "LAX"), what="a container of the new template")
    assert client.ask("LAX", b"next").body == b"LAX|next"
    assert len(client.answers[busy]) == 1


async def test_idle_groups_are_stopped_and_their_queues_deleted(dockerd: DockerSubject, make: Make) -> None:
    pool, client = make(unbind_delay=1.0, stop_delay=1.0)
    pool.daemon()
    keys = ["LAX", "SFO", "é/ 50%"]
    client.wait(*(client.send(key) for key in keys))
    queues = {pool.pool.names.request_queue(key) for key in keys}
    until(lambda: not queues & pool.pool.queues(), what="the queues to be deleted")
    until(lambda: not any(ids(dockerd, key) for key in keys), what="the containers to be removed")
    # And the next request finds it all again
    assert client.ask("LAX", b"hello").body == b"LAX|hello"


async def test_a_missing_image_is_in_the_status_until_it_is_there(dockerd: DockerSubject, make: Make) -> None:
    pool, client = make()
    image = f"late-{secrets.token_hex(4)}:1"
    pool.declare(Image=image)
    daemon = pool.daemon()
    waiting = client.send("LAX", b"hello")

    def error() -> str:
        return str((daemon.key("LAX") or {}).get("last_error") or "")

    until(lambda: f"No such image: {image}" in error(), what="the error of the key")
    dockerd.docker("tag", dockerd.image, image)
    try:
        assert client.wait(waiting)[0].body == b"LAX|hello"
    finally:
        dockerd.docker("rmi", "--force", image)
