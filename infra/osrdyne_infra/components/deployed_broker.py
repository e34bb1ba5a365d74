"""A broker on a cluster, for the pools of another stack."""

from __future__ import annotations

import pulumi

from osrdyne_infra.broker import operator, statefulset
from osrdyne_infra.cluster.namespace import Namespace
from osrdyne_infra.components.cluster import ClusterProvider
from osrdyne_infra.configuration import BrokerStack
from osrdyne_infra.ordering import outer

_FORMER = ("osrdyne:kubernetes:StatefulSetBroker", "osrdyne:kubernetes:OperatorBroker")


class DeployedBroker(pulumi.ComponentResource):
    """A RabbitMQ, in a namespace of its own. Programs of the cluster reach it by the Service `broker` there."""

    #: Addresses of its management API, and of AMQP, in the cluster.
    management: pulumi.Output[str]
    amqp: pulumi.Output[str]

    def __init__(
        self, name: str, settings: BrokerStack, cluster: ClusterProvider, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("osrdyne:index:DeployedBroker", name, None, outer(opts, *_FORMER, providers=[cluster]))
        where = settings.cluster.namespace
        place = Namespace(where, settings.cluster.pod_security, 0, self, "broker").place
        kind = statefulset if settings.deployment.kind == "statefulset" else operator
        kind.declare(settings, place, self)
        self.management = pulumi.Output.from_input(f"http://broker.{where}.svc:15672")
        self.amqp = pulumi.Output.from_input(f"amqp://broker.{where}.svc:5672")
        self.register_outputs({"management": self.management, "amqp": self.amqp})
