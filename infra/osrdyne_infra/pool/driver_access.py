"""What a daemon may do in its namespace: exactly what its driver does, which docs/howto/driver-kubernetes.md lists."""

from __future__ import annotations

import pulumi
import pulumi_kubernetes as kubernetes
from pulumi_kubernetes.rbac.v1 import PolicyRuleArgs, RoleRefArgs, SubjectArgs

from osrdyne_infra.cluster.access import Place, part
from osrdyne_infra.ordering import inside

#: What is done to Deployments and to autoscalers.
VERBS = ["list", "watch", "create", "patch", "delete"]
#: Autoscaling -> API group and kind of object that the driver makes beside a Deployment.
SCALERS = {"hpa": ("autoscaling", "horizontalpodautoscalers"), "keda": ("keda.sh", "scaledobjects")}


def rules(autoscaling: str) -> list[PolicyRuleArgs]:
    """Return the rights of a daemon whose workers are scaled so."""
    needed = [
        PolicyRuleArgs(api_groups=["apps"], resources=["deployments"], verbs=VERBS),
        PolicyRuleArgs(api_groups=[""], resources=["pods"], verbs=["list", "watch"]),
    ]
    if autoscaling in SCALERS:
        group, resource = SCALERS[autoscaling]
        needed.append(PolicyRuleArgs(api_groups=[group], resources=[resource], verbs=VERBS))
    return needed


class DriverAccess(pulumi.ComponentResource):
    """The daemon's ServiceAccount, its Role, and that it has it. `granted` is there once it may work."""

    def __init__(self, pool: str, autoscaling: str, place: Place, parent: pulumi.ComponentResource) -> None:
        super().__init__("osrdyne:kubernetes:DriverAccess", place.own(pool), None, inside(parent))
        name = f"{pool}-daemon"
        account = kubernetes.core.v1.ServiceAccount(
            place.own(name),
            metadata=place.metadata(name),
            # Only a pod that says so gets a token.
            automount_service_account_token=False,
            opts=part(self),
        )
        role = kubernetes.rbac.v1.Role(
            place.own(name), metadata=place.metadata(name), rules=rules(autoscaling), opts=part(self)
        )
        self.granted = kubernetes.rbac.v1.RoleBinding(
            place.own(name),
            metadata=place.metadata(name),
            role_ref=RoleRefArgs(api_group="rbac.authorization.k8s.io", kind="Role", name=name),
            subjects=[SubjectArgs(kind="ServiceAccount", name=name, namespace=place.namespace)],
            opts=part(self, [account, role]),
        )
        #: Name of the ServiceAccount.
        self.account = name
        self.register_outputs({"account": name})
