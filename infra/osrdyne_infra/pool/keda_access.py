"""How KEDA looks at a pool's queues: as the user that may see the broker's figures, and takes nothing."""

from __future__ import annotations

import pulumi
import pulumi_kubernetes as kubernetes

from osrdyne_infra.cluster.access import Place, part
from osrdyne_infra.ordering import inside
from osrdyne_infra.pool.config import secret
from osrdyne_infra.pool.worker_templates import broker_access


class KedaAccess(pulumi.ComponentResource):
    """A Secret, and the TriggerAuthentication that the ScaledObjects of the pool name.

    `address` is that of the management API, with the vhost as its path. `authority` is the certificate of the CA that
    vouches for it, empty where KEDA knows it already.
    """

    def __init__(
        self, pool: str, address: pulumi.Output[str], authority: str, place: Place, parent: pulumi.ComponentResource
    ) -> None:
        super().__init__("osrdyne:kubernetes:KedaAccess", place.own(pool), None, inside(parent))
        name = f"{pool}-scaler"
        data = {"host": address}
        if authority:
            data |= {"tls": pulumi.Output.from_input("enable"), "ca": pulumi.Output.from_input(authority)}
        holding = secret(name, data, place, part(self))
        self.made = kubernetes.apiextensions.CustomResource(
            place.own(broker_access(pool)),
            api_version="keda.sh/v1alpha1",
            kind="TriggerAuthentication",
            metadata=place.metadata(broker_access(pool)),
            spec={"secretTargetRef": [{"parameter": key, "name": name, "key": key} for key in data]},
            opts=part(self, [holding]),
        )
        self.register_outputs({})
