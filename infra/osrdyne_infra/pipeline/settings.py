"""What the configuration says of pipelines that run by themselves: which pools have one, and how its runs go. Pure."""

from __future__ import annotations

import re
from functools import partial
from typing import Annotated

from pydantic import BeforeValidator, Field

from osrdyne_infra import checks
from osrdyne_infra.checks import Filled, Image, InvalidValue, Quantity
from osrdyne_infra.cluster.settings import PullPolicy, Resources
from osrdyne_runtime.settings.model import StrictModel

_MEMORY = re.compile(r"[1-9][0-9]*[mg]", re.ASCII | re.IGNORECASE)


def _memory(value: object) -> str:
    if not _MEMORY.fullmatch(checks.filled(value)):
        raise InvalidValue(f"{value!r} is not a size such as 512m or 2g")
    return str(value)


class PipelinePlace(StrictModel):
    """The runs of the pipelines of some pools, each on a volume of its own."""

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
    #: Of the volume of each pool: its tables and its page.
    storage: Quantity = "10Gi"
    storage_class: Filled = ""
    pull_policy: PullPolicy = "IfNotPresent"
    resources: Resources = Field(
        default_factory=lambda: {"requests": {"cpu": "100m", "memory": "512Mi"}, "limits": {"memory": "2Gi"}}
    )

    def has(self, pool: str) -> bool:
        """Return whether a pool of the stack has a pipeline."""
        return not self.pools or pool in self.pools
