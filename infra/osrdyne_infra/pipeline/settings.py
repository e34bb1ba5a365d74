"""What the configuration says of pipelines that run by themselves: which pools have one, and how its runs go. Pure."""

from __future__ import annotations

import re
from functools import partial
from typing import Annotated, Self

from pydantic import BeforeValidator, Field, model_validator

from osrdyne_infra import checks
from osrdyne_infra.checks import DiskSize, Filled, HttpAddress, Image, InvalidValue
from osrdyne_infra.cluster.settings import PullPolicy, Resources
from osrdyne_runtime.settings.model import StrictModel

#: A place in an object store, as the option --lake of the pipeline has it.
_STORE = re.compile(r"s3a?://[^/\s]+(/\S*)?")
_MEMORY = re.compile(r"[1-9][0-9]*[mg]", re.ASCII | re.IGNORECASE)


def _memory(value: object) -> str:
    if not isinstance(value, str) or not _MEMORY.fullmatch(value):
        raise InvalidValue(f"{value!r} is not a size such as 512m or 2g")
    return value


def _lake(value: object) -> str:
    if not _STORE.fullmatch(checks.filled(value)):
        raise InvalidValue(
            f"{value!r} is not a place in an object store; give s3://BUCKET/PREFIX, or none for a volume"
        )
    return str(value)


class PipelinePlace(StrictModel):
    """The runs of the pipelines of some pools, each on a volume of its own, or all in an object store."""

    #: That of the daemons does not have the pipeline: docs/howto/images.md says how one is made that has.
    image: Image
    #: Pools that have one; all of the stack by default.
    pools: Annotated[tuple[Filled, ...], BeforeValidator(partial(checks.each, checks.filled))] = ()
    #: When a run begins, as Kubernetes' CronJob has it, in the time zone of the cluster.
    schedule: Filled = "10 3 * * *"
    #: Seconds that a run may take.
    time_limit: Annotated[int, BeforeValidator(checks.integer(60))] = 3600
    #: Memory of the engine, which is within that of the container.
    memory: Annotated[str, BeforeValidator(_memory)] = "1g"
    #: Place of the tables and pages in an object store, LAKE/POOL; without it, each pool has a volume.
    lake: Annotated[str, BeforeValidator(_lake)] = ""
    #: Address of the store, and region of the bucket; Amazon's, where there is none.
    s3_endpoint: HttpAddress = ""
    s3_region: Filled = ""
    #: Of the volume of each pool: its tables and its page.
    storage: DiskSize = "10Gi"
    storage_class: Filled = ""
    pull_policy: PullPolicy = "IfNotPresent"
    resources: Resources = Field(
        default_factory=lambda: {"requests": {"cpu": "100m", "memory": "512Mi"}, "limits": {"memory": "2Gi"}}
    )

    #: Of the bucket, which are settings of their own. Without them, the store knows the pod.
    s3_access_key: str = Field(default="", repr=False, exclude=True)
    s3_secret_key: str = Field(default="", repr=False, exclude=True)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        for name in ("s3_endpoint", "s3_region"):
            if getattr(self, name) and not self.lake:
                raise InvalidValue("is of an object store; give `lake`, too", f".{name}")
        for name in ("storage", "storage_class"):
            if self.lake and name in self.model_fields_set:
                raise InvalidValue("is of a volume; with `lake` there is none, so leave it out", f".{name}")
        return self

    def has(self, pool: str) -> bool:
        """Return whether a pool of the stack has a pipeline."""
        return not self.pools or pool in self.pools
