"""A namespace of the stack. What runs in it goes with it, also the worker groups that a daemon started."""

from __future__ import annotations

from collections.abc import Sequence

import pulumi
import pulumi_kubernetes as kubernetes
from pulumi_kubernetes.meta.v1 import ObjectMetaArgs

from osrdyne_infra.cluster.access import LABELS, Place
from osrdyne_infra.ordering import inside

#: Seconds that a namespace may need to go, beyond what its pods may take to end.
MARGIN_SECONDS = 300


class Namespace(pulumi.ComponentResource):
    """One namespace of a component, whose objects' names have this `beginning`.

    `grace` is how many seconds its pods may take to end.
    """

    def __init__(
        self,
        name: str,
        pod_security: str,
        grace: float,
        parent: pulumi.ComponentResource,
        beginning: str,
        after: Sequence[pulumi.Resource] = (),
    ) -> None:
        super().__init__("osrdyne:kubernetes:Namespace", name, None, inside(parent))
        patience = pulumi.CustomTimeouts(delete=f"{round(grace) + MARGIN_SECONDS}s")
        made = kubernetes.core.v1.Namespace(
            name,
            metadata=ObjectMetaArgs(name=name, labels={**LABELS, "pod-security.kubernetes.io/enforce": pod_security}),
            opts=pulumi.ResourceOptions(parent=self, depends_on=list(after), custom_timeouts=patience),
        )
        self.place = Place(made.metadata.apply(lambda known: str(known.name)), parent.pulumi_resource_name, beginning)
        self.register_outputs({"name": self.place.namespace})
