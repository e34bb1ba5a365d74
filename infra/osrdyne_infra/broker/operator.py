"""A RabbitMQ that the RabbitMQ Cluster Operator makes and keeps, where the cluster has that operator."""

from __future__ import annotations

import pulumi
import pulumi_kubernetes as kubernetes

from osrdyne_infra.broker import credentials as broker_credentials
from osrdyne_infra.broker.statefulset import ADVANCED, CONFIGURATION, NAME
from osrdyne_infra.cluster.access import Place, part
from osrdyne_infra.configuration import BrokerStack


class OperatorBroker(pulumi.ComponentResource):
    """A RabbitmqCluster; the operator makes the Service `broker`, by which it is reached."""

    def __init__(self, stack: BrokerStack, place: Place, provider: kubernetes.Provider) -> None:
        super().__init__("osrdyne:kubernetes:OperatorBroker", NAME, None, pulumi.ResourceOptions(provider=provider))
        admin = broker_credentials.credentials(stack, place, self)
        deployment = stack.deployment
        persistence = {"storage": deployment.storage}
        if deployment.storage_class:
            persistence["storageClassName"] = deployment.storage_class
        kubernetes.apiextensions.CustomResource(
            NAME,
            api_version="rabbitmq.com/v1beta1",
            kind="RabbitmqCluster",
            metadata=place.metadata(NAME),
            spec={
                "replicas": deployment.replicas,
                "image": deployment.image,
                "persistence": persistence,
                "resources": deployment.resources,
                # The operator itself enables management and prometheus.
                "rabbitmq": {
                    "additionalPlugins": ["rabbitmq_stream"],
                    "additionalConfig": CONFIGURATION,
                    "advancedConfig": ADVANCED,
                },
                "secretBackend": {"externalSecret": {"name": broker_credentials.NAME}},
            },
            opts=part(self, [admin]),
        )
        self.register_outputs({})
