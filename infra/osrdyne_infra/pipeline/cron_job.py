"""The pipeline of one pool: a CronJob, the settings and the Secret that it reads, and the volume where it keeps tables.

One run at a time. What was killed is repeated by the next run without loss, so a failed pod is not tried again before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pulumi
import pulumi_kubernetes as kubernetes
from pulumi_kubernetes.batch import v1 as batch
from pulumi_kubernetes.core import v1 as core
from pulumi_kubernetes.meta import v1 as meta

from osrdyne_infra.cluster import replicated
from osrdyne_infra.cluster.access import LABELS, Place, part
from osrdyne_infra.ordering import inside
from osrdyne_infra.pipeline.settings import PipelinePlace
from osrdyne_infra.pool import config
from osrdyne_infra.pool.config import CREDENTIALS, SETTINGS
from osrdyne_pool.settings import PoolSettings

#: The volume, in a run: LAKE/POOL has the tables and report.html.
LAKE = "/var/lib/osrdyne/lake"
#: Seconds beyond its own limit, for a pod to start and to end.
MARGIN_SECONDS = 300
#: For what does not fit into the memory of the engine.
SCRATCH_SIZE = "10Gi"
#: Jobs that are kept, for their logs.
KEPT = 3


def labels(pool: str) -> dict[str, str]:
    """Return the labels by which the runs of a pool's pipeline are found."""
    return {"app.kubernetes.io/name": "osrdyne-pipeline", "app.kubernetes.io/instance": pool}


class PipelineCronJob(pulumi.ComponentResource):
    """A CronJob with what it needs. `address` is the broker's, of the user who may read the pool's events.

    `authority` names the folder and the ConfigMap of the broker's CA, where it has its own.
    """

    def __init__(
        self,
        pool: PoolSettings,
        given: PipelinePlace,
        address: pulumi.Output[str],
        authority: Mapping[str, str],
        place: Place,
        after: Sequence[pulumi.Resource],
        parent: pulumi.ComponentResource,
    ) -> None:
        super().__init__("osrdyne:kubernetes:PipelineCronJob", place.own(pool.name), None, inside(parent))
        name = f"{pool.name}-pipeline"
        _, made = config.of_program(name, pool, {"pipeline.uri": address, **_keys(given)}, place, self)
        own: dict[str, core.VolumeArgs] = {}
        if not given.lake:
            made.append(self._volume(name, given, place))
            claim = core.PersistentVolumeClaimVolumeSourceArgs(claim_name=name)
            own[LAKE] = core.VolumeArgs(name="lake", persistent_volume_claim=claim)
        # The keys of a bucket are variables, and nothing reads them as files.
        volumes = config.volumes(name, authority, *own.values(), files=("pipeline.uri",))
        run = _run(pool.name, name, given, config.places(authority, dict.fromkeys(own, "lake")))
        pod = replicated.pod(labels(pool.name), [run], volumes, once=True, scratch=SCRATCH_SIZE)
        kubernetes.batch.v1.CronJob(
            place.own(name),
            metadata=place.metadata(name, labels(pool.name)),
            spec=batch.CronJobSpecArgs(
                schedule=given.schedule,
                concurrency_policy="Forbid",
                # A cluster that was away starts at most one run that it has missed.
                starting_deadline_seconds=MARGIN_SECONDS,
                successful_jobs_history_limit=KEPT,
                failed_jobs_history_limit=KEPT,
                job_template=batch.JobTemplateSpecArgs(
                    metadata=meta.ObjectMetaArgs(labels={**LABELS, **labels(pool.name)}),
                    spec=batch.JobSpecArgs(
                        backoff_limit=0,
                        active_deadline_seconds=given.time_limit + MARGIN_SECONDS,
                        template=core.PodTemplateSpecArgs(
                            metadata=meta.ObjectMetaArgs(labels={**LABELS, **labels(pool.name)}), spec=pod
                        ),
                    ),
                ),
            ),
            opts=part(self, [*made, *after]),
        )
        self.register_outputs({})

    def _volume(self, name: str, given: PipelinePlace, place: Place) -> pulumi.Resource:
        """Return the claim. Some classes bind it only when a first pod uses it, which `up` does not wait for."""
        return kubernetes.core.v1.PersistentVolumeClaim(
            place.own(name),
            metadata=place.metadata(name, annotations={"pulumi.com/skipAwait": "true"}),
            spec=core.PersistentVolumeClaimSpecArgs(
                access_modes=["ReadWriteOnce"],
                storage_class_name=given.storage_class or None,
                resources=core.VolumeResourceRequirementsArgs(requests={"storage": given.storage}),
            ),
            opts=part(self),
        )


def _keys(given: PipelinePlace) -> dict[str, pulumi.Output[str]]:
    """Return the keys of the bucket, by the variables that have them."""
    if not given.s3_access_key:
        return {}
    keys = {"AWS_ACCESS_KEY_ID": given.s3_access_key, "AWS_SECRET_ACCESS_KEY": given.s3_secret_key}
    return {name: pulumi.Output.secret(key) for name, key in keys.items()}


def _run(pool: str, secret_name: str, given: PipelinePlace, places: Mapping[str, str]) -> core.ContainerArgs:
    options = {
        "--pool": pool,
        "--lake": given.lake or LAKE,
        "--uri-file": f"{CREDENTIALS}/pipeline.uri",
        "--settings": f"{SETTINGS}/settings.toml",
        "--memory": given.memory,
        "--time-limit": str(given.time_limit),
    }
    words = ["osrdyne", "pipeline", "run", *(word for option in options.items() for word in option)]
    store = {"AWS_ENDPOINT_URL": given.s3_endpoint, "AWS_REGION": given.s3_region}
    variables = [core.EnvVarArgs(name=name, value=value) for name, value in store.items() if value]
    for name in _keys(given):
        key = core.SecretKeySelectorArgs(name=secret_name, key=name)
        variables.append(core.EnvVarArgs(name=name, value_from=core.EnvVarSourceArgs(secret_key_ref=key)))
    return replicated.container("pipeline", given.image, given, words, places, env=variables or None)
