"""A RabbitMQ that the RabbitMQ Cluster Operator makes and keeps, where the cluster has that operator."""

from __future__ import annotations

import pulumi
import pulumi_kubernetes as kubernetes

from osrdyne_infra.broker import credentials as broker_credentials
from osrdyne_infra.broker.statefulset import ADVANCED, CONFIGURATION, NAME
from osrdyne_infra.cluster.access import Place, part
from osrdyne_infra.configuration import BrokerStack


def declare(stack: BrokerStack, place: Place, parent: pulumi.ComponentResource) -> None:
    """Declare a RabbitmqCluster; the operator makes the Service `broker`, by which it is reached."""
    admin = broker_credentials.credentials(stack, place, parent)
    deployment = stack.deployment
    persistence = {"storage": deployment.storage}
    if deployment.storage_class:
        persistence["storageClassName"] = deployment.storage_class
    kubernetes.apiextensions.CustomResource(
        place.own(NAME),
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
        opts=part(parent, [admin]),
    )
