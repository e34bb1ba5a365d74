"""The administrator of a broker that the stack deploys, in a Secret that the broker reads at its first start."""

from __future__ import annotations

import pulumi
import pulumi_kubernetes as kubernetes

from osrdyne_infra.cluster.access import Place, part
from osrdyne_infra.configuration import BrokerStack
from osrdyne_infra.pool.config import secret

#: Name of the Secret, and the key of the part of rabbitmq.conf in it.
NAME = "broker-admin"
FILE = "default_user.conf"


def credentials(stack: BrokerStack, place: Place, parent: pulumi.ComponentResource) -> kubernetes.core.v1.Secret:
    """Return the Secret. It has the keys that the RabbitMQ Cluster Operator wants of one that others made."""
    name, password = stack.deployment.admin, pulumi.Output.secret(stack.admin_password)
    data = {
        "username": pulumi.Output.from_input(name),
        "password": password,
        FILE: password.apply(lambda clear: f"default_user = {name}\ndefault_pass = {clear}\n"),
    }
    return secret(NAME, data, place, part(parent))
