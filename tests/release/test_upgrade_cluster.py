"""A stack with jobs and a relay comes from the release before to this one on a cluster, by Pulumi, and back.

Its image of the daemon is that of redo and of the relay's nodes, too: one `up` exchanges them all. Workers of the jobs'
pool are pods; those at the relay are on this machine, as its callers are.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from osrdyne_relay.http.access import sha256_of
from testbed import redis
from testbed.postgres import Postgres
from testbed.waiting import until
from tests.infra.clustered import OnCluster
from tests.infra.conftest import cluster, fresh
from tests.infra.test_jobs_on_cluster import address, redo, server
from tests.infra.test_relay_on_cluster import NODES, REDIS, REDIS_IMAGE, running
from tests.release import test_upgrade_jobs
from tests.release.live_pool import CALLER, LATEST_SECONDS
from tests.release.test_upgrade_jobs import not_done_once
from tests.release.test_upgrade_pulumi import SMALL, LiveStack, images
from tests.release.test_upgrade_relay import TOKEN, served
from tests.release.two_versions import KEYS, Answers, Caller, Version

__all__ = ["cluster", "fresh", "images", "server"]
# The first of them may have to wait for the cluster and the images.
pytestmark = [pytest.mark.full, pytest.mark.xdist_group("cluster"), pytest.mark.timeout(2400)]

#: The name that attempts show says which pod did a job, and of which release: the one before has no such module.
WORKER = """
import os
from importlib.util import find_spec
from osrdyne_jobs import JobType, JobWorker, engine_from_environment
release = "after" if find_spec("osrdyne_pool.differences") else "before"
noted = {JobType("noted", payload=dict[str, int]): lambda run: None}
JobWorker(engine_from_environment(), noted, name=f"{os.environ['HOSTNAME']} {release}").run()
"""
#: Reads it, for pods share no folder with this machine.
_OF_PODS = """
from sqlalchemy import text
DONE = text(
    "SELECT worker FROM osrdyne_job j JOIN osrdyne_job_run r ON r.id = run_id WHERE j.id = :id AND state = 'done'"
)

class JobsOfPods(Jobs):
    def done(self, number):
        with self.engine.connect() as connection:
            return (connection.execute(DONE, {"id": number}).scalar() or "").encode()
"""
#: Callers call at a pace that a cluster on this machine bears beside the start of all its pods.
PAUSE_SECONDS = 0.5
JOBS = Caller(test_upgrade_jobs.JOB_CLIENT + _OF_PODS, "JobsOfPods()", "f'jobs-{int(key[-1]) % 2}'", PAUSE_SECONDS)
#: Of a pool whose workers poll at the relay, over AMQP and over the nodes.
FAR = replace(CALLER, client="Client(os.environ['AMQP_URI'], 'far')", pause=PAUSE_SECONDS)
#: The one address of all nodes may lead to one that stops. Nothing was sent then, and the caller calls again. A node of
#: 0.1.0 may end a connection when a call begins. Whether that ran is not known; here, to call again does no harm.
_AGAIN = """
from osrdyne_relay.client import RelayClient
from osrdyne_relay.errors import NodeLost, NodesAway

class Again(RelayClient):
    def call(self, endpoint, body, timeout):
        until = time.monotonic() + timeout
        while True:
            try:
                return super().call(endpoint, body, timeout=timeout)
            except (NodeLost, NodesAway):
                if time.monotonic() > until:
                    raise
                time.sleep(0.1)
"""
OVER_NODES = Caller(_AGAIN, "Again(os.environ['NODES'], token=os.environ['TOKEN'])", "f'far/{key}'", PAUSE_SECONDS)
ENDPOINTS = [f"far/{name}-{number}" for name in ("far", "before", "after") for number in range(KEYS)]


@dataclass
class WholeStack(LiveStack):
    """A stack with a pool of jobs and one whose workers poll."""

    worker: str = WORKER
    _polling: ExitStack = field(default_factory=ExitStack)

    def up(self, program: Version, daemon: Version, workers: Version, *, refresh: bool = False) -> None:
        super().up(program, daemon, workers, refresh=refresh)
        self.stack.settled("far")
        pods = [*self.stack.daemons("far").values(), *redo(self.stack).values()]
        pods += running(self.stack, NODES).values()
        assert len(pods) == 6
        assert {pod["spec"]["containers"][0]["image"] for pod in pods} == {self.images[daemon]}

    def poll(self, version: Version) -> None:
        """Have the relay's worker exchanged by one of a version."""
        former, self._polling = self._polling, ExitStack()
        self._polling.enter_context(served(version, self.variables(), ENDPOINTS))
        former.close()

    def close(self) -> None:
        self._polling.close()

    def variables(self, pool: str = "core") -> dict[str, str]:
        given = self.stack.project.outputs()["addresses"][pool]["client"]
        (self.folder / "jobs.address").write_text(address(self.stack))
        service = self.stack.get("relay", "service", "relay")
        node = f"http://{self.stack.cluster.address}:{service['spec']['ports'][0]['nodePort']}"
        return {
            "PATH": os.environ["PATH"],
            "AMQP_URI": given.replace(self.stack.cluster.gateway, "127.0.0.1"),
            "OSRDYNE_JOBS_DATABASE_FILE": str(self.folder / "jobs.address"),
            "NODES": node,
            "TOKEN": TOKEN,
            "NO_PROXY": "*",
        }


@pytest.fixture
def live(fresh: OnCluster, server: Postgres, images: dict[Version, str], tmp_path: Path) -> Iterator[WholeStack]:
    files, command = redis.as_image()
    fresh.cluster.load_image(REDIS_IMAGE, files, command)
    fresh.cluster.forward(server.port)
    fresh.values |= {
        "pools": [
            # A worker of 0.1.0 that ends may drop the request of a job: redo finds it after these seconds, at most
            {"name": "core", "jobs": {"redo": {"interval": 0.5, "pause": 2}}},
            {"name": "far"},
        ],
        "jobs": {
            "database": f"postgresql://127.0.0.1:{server.port}",
            "inside_database": f"postgresql://{fresh.cluster.gateway}:{server.port}",
            "admin": server.admin,
            "redo": {"resources": SMALL},
        },
        "relay": {
            "redis": {"image": REDIS_IMAGE, "command": command, "resources": SMALL},
            "nodes": {"resources": SMALL, "service": "NodePort"},
            "clients": {"all": {"token_sha256": sha256_of(TOKEN), "serve": ["far/*"], "call": ["far/*"]}},
            "pools": ["far"],
            "settings": {"serve": {"plain_http": True}},
        },
    }
    fresh.values["kubernetes"]["daemon"]["resources"] = SMALL
    fresh.more_secrets = {"jobs_admin_password": server.admin_password}
    live = WholeStack(fresh, images, tmp_path)
    try:
        yield live
    finally:
        live.close()


def test_jobs_and_a_relay_on_a_cluster_are_upgraded_and_downgraded_by_pulumi_under_load(
    live: WholeStack, before: Version, after: Version
) -> None:
    live.up(before, before, before)
    (kept,) = running(live.stack, REDIS)
    live.poll(serving := before)
    with ExitStack() as callers:

        def called(caller: Caller, version: Version, name: str, pool: str = "core") -> Answers:
            return callers.enter_context(caller.called(version, live.folder, live.variables(pool), name))

        jobs = {"jobs": called(JOBS, before, "jobs")}
        polled = {
            "far": called(FAR, before, "far", "far"),
            "before": called(OVER_NODES, before, "before"),
            "after": called(OVER_NODES, after, "after"),
        }
        # Programs, then workers; and back in the opposite order
        for program, daemon, workers in (
            (after, after, before),
            (after, after, after),
            (after, after, before),
            (after, before, before),
            (before, before, before),
        ):
            # The way back is tried with what is there; the other tests have it without
            live.up(program, daemon, workers, refresh=program is before)
            if workers is not serving:
                live.poll(workers)
            serving = workers
            for name in jobs:
                release = " after" if workers is after else " before"
                until(live.answered_by(name, release), what="jobs that the exchanged workers did")
            for name in polled:
                until(live.answered_by(name, f" {workers.environment.place}"), what="answers of the relay's worker")
        jobs["new"] = called(JOBS, after, "new")

    # A job has no reply. It is done once, and when depends on how fast pods start
    slowest = {name: max(seconds for *_, seconds in called.lines) for name, called in polled.items()}
    assert max(slowest.values()) < LATEST_SECONDS, slowest
    # Each key had one worker of each kind, and the first one's successor: none was restarted without need
    kinds = {key: [answer.split()[-1] for answer in seen] for key, seen in jobs["jobs"].workers().items()}
    assert kinds == {key: ["before", "after", "before"] for key in kinds}
    assert not_done_once(address(live.stack)) == []
    for answers in polled.values():
        places = {answer.split()[-1] for seen in answers.workers().values() for answer in seen}
        assert places == {str(before.environment.place), str(after.environment.place)}
    # What is in Redis is that of both releases
    assert [*running(live.stack, REDIS)] == [kept]
