"""The redo processes of a pool with jobs: one leads, the others stand by.

Before each starts, its pod brings the tables to the version of its image, as their owner. Two at once do no harm. When
that fails, the rollout stops, and the processes of the former image go on. Redo itself may not alter tables.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence

import pulumi
from pulumi_kubernetes.core import v1 as core

from osrdyne_infra.cluster import replicated
from osrdyne_infra.cluster.access import Place, part
from osrdyne_infra.cluster.settings import DaemonPods
from osrdyne_infra.jobs.settings import ADDRESS_FILE, AUTHORITY_FILE, FOLDER, OWNER_FILE, JobsPlace, RedoPods
from osrdyne_infra.ordering import inside
from osrdyne_infra.pool import config
from osrdyne_infra.pool.config import CREDENTIALS, SETTINGS, certificate, secret
from osrdyne_infra.pool.worker_templates import jobs_secret
from osrdyne_pool.settings import PoolSettings

#: Touched by redo after each scan.
READY = f"{replicated.SCRATCH}/redo.ready"


def labels(pool: str) -> dict[str, str]:
    """Return the labels by which the redo processes of a pool are found."""
    return {"app.kubernetes.io/name": "osrdyne-redo", "app.kubernetes.io/instance": pool}


class RedoDeployment(pulumi.ComponentResource):
    """A Deployment with its settings and Secrets.

    `addresses` are those of the database; `client` is the broker's, and `authority` names the folder and the ConfigMap
    of the broker's CA, where it has its own.
    """

    def __init__(
        self,
        pool: PoolSettings,
        jobs: JobsPlace,
        daemon: DaemonPods,
        addresses: Mapping[str, pulumi.Output[str]],
        client: pulumi.Output[str],
        authority: Mapping[str, str],
        place: Place,
        after: Sequence[pulumi.Resource],
        parent: pulumi.ComponentResource,
    ) -> None:
        super().__init__("osrdyne:kubernetes:RedoDeployment", place.own(pool.name), None, inside(parent))
        name = f"{pool.name}-redo"
        trusted = (
            {AUTHORITY_FILE: pulumi.Output.from_input(certificate(jobs.cacertfile, "jobs"))} if jobs.cacertfile else {}
        )
        settings, read = config.of_program(name, pool, {"client.uri": client}, place, self)
        made: list[pulumi.Resource] = [
            *read,
            # Workers have it, too.
            secret(jobs_secret(pool.name), {ADDRESS_FILE: addresses["jobs"], **trusted}, place, part(self)),
            secret(f"{pool.name}-jobs-owner", {OWNER_FILE: addresses["jobs-owner"], **trusted}, place, part(self)),
        ]
        volumes = config.volumes(
            name,
            authority,
            replicated.secret("jobs", jobs_secret(pool.name)),
            replicated.secret("owner", f"{pool.name}-jobs-owner"),
        )
        pods = jobs.redo
        image = pods.image or daemon.image
        migrate = ["osrdyne", "jobs", "migrate", "--database-file", f"{FOLDER}/{OWNER_FILE}"]
        migration = replicated.container("migrate", image, pods, migrate, {FOLDER: "owner"})
        pod = replicated.pod(labels(pool.name), [_redo(pool, pods, image, authority)], volumes, first=[migration])
        digest = hashlib.sha256(settings.encode()).hexdigest()[:32]
        self.made = replicated.deployment(
            self, name, labels(pool.name), pods.replicas, digest, pod, place, [*made, *after]
        )
        self.register_outputs({})


def _redo(pool: PoolSettings, pods: RedoPods, image: str, authority: Mapping[str, str]) -> core.ContainerArgs:
    files = {
        "--settings": f"{SETTINGS}/settings.toml",
        "--broker-file": f"{CREDENTIALS}/client.uri",
        "--database-file": f"{FOLDER}/{ADDRESS_FILE}",
        "--ready-file": READY,
    }
    return replicated.container(
        "redo",
        image,
        pods,
        ["osrdyne", "jobs", "redo", "--json", *(word for option in files.items() for word in option)],
        config.places(authority, {FOLDER: "jobs"}),
        # No liveness: a process that hangs loses the lead by its lease, and one that waits for the database or the
        # broker is not helped by a restart.
        readiness_probe=replicated.probe(
            exec_=core.ExecActionArgs(command=["sh", "-c", f'test -n "$(find {READY} -mmin -{_minutes(pool)})"']),
            period=5,
            failures=3,
        ),
    )


def _minutes(pool: PoolSettings) -> int:
    """Return how old the last scan may be: two intervals, and a minute for a scan of many jobs."""
    return math.ceil(2 * pool.redo().interval / 60) + 1
