"""What the package takes and gives, as Pulumi makes libraries of other languages from it. Pure.

Names are those of a stack's file and of `PoolArguments`, as errors name them too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Required, get_args, get_origin, get_type_hints

import pulumi

from osrdyne_infra.components.arguments import BrokerArguments, PoolArguments
from osrdyne_infra.configuration import HIDDEN
from osrdyne_infra.package.resource import PACKAGE

_TEXT: Mapping[str, Any] = {"type": "string"}
_TEXTS: Mapping[str, Any] = {"type": "object", "additionalProperties": _TEXT}
_BY_POOL: Mapping[str, Any] = {"type": "object", "additionalProperties": _TEXTS, "secret": True}


@dataclass(frozen=True)
class Component:
    """What one component takes and gives."""

    description: str
    #: The TypedDict that says the types of `settings`.
    arguments: type
    #: Setting -> its description.
    settings: Mapping[str, str]
    #: Output -> its description and its schema.
    outputs: Mapping[str, tuple[str, Mapping[str, Any]]]


#: Types of the components.
POOLS, BROKER = f"{PACKAGE}:index:Pools", f"{PACKAGE}:index:BrokerOnCluster"
COMPONENTS: Mapping[str, Component] = {
    POOLS: Component(
        "A vhost with all of its pools, on a broker that is there.",
        PoolArguments,
        {
            "broker": "Where the broker is, and its administrator.",
            "admin_password": "The administrator's password, which may be an output.",
            "vhost": "The vhost, which is of these pools alone.",
            "instance": "Name of this deployment, with which its broker users end.",
            "pools": "The pools, each with its name and settings.",
            "lose_messages_of": "The pools whose messages may be lost.",
            "mend_lost_queues": "Whether queues that the broker lost are declared again.",
            "rotate": "By pool and role, a text that makes a new password when it changes.",
            "adopt": "Whether what is on the broker already is taken over.",
            "kubernetes": "The cluster on which daemons and workers run; without it none do.",
            "kubeconfig": "The credentials of the cluster; by default those of this machine.",
            "workers": "By pool, the workers on the cluster.",
            "jobs": "The database server of pools with jobs.",
            "jobs_admin_password": "The password of its administrator, which may be an output.",
            "relay": "The relay on the cluster, for pools whose workers poll.",
            "relay_key": "The private key of its nodes, for TLS.",
            "relay_s3_access_key": "The access key of the relay's bucket.",
            "relay_s3_secret_key": "The secret key of the relay's bucket.",
            "pipeline": "The pipeline that runs on the cluster by itself.",
            "pipeline_s3_access_key": "The access key of the pipeline's bucket.",
            "pipeline_s3_secret_key": "The secret key of the pipeline's bucket.",
        },
        {
            "vhost": ("Name of the vhost, known once it is there.", _TEXT),
            "addresses": ("By pool and role: where clients, workers and daemons find the broker.", _BY_POOL),
            "databases": ("By pool and role: where programs find the database of jobs.", _BY_POOL),
            "namespaces": ("By pool: its namespace on the cluster.", _TEXTS),
        },
    ),
    BROKER: Component(
        "A RabbitMQ on a cluster, for pools.",
        BrokerArguments,
        {
            "broker_deployment": "How the broker is made, and its administrator.",
            "admin_password": "The password that its administrator gets.",
            "kubernetes": "The cluster and the namespace.",
            "kubeconfig": "The credentials of the cluster; by default those of this machine.",
            "adopt": "Whether objects that are there already are taken over.",
        },
        {
            "management": ("Address of its management API in the cluster.", _TEXT),
            "amqp": ("Its address of AMQP in the cluster.", _TEXT),
        },
    ),
}


def schema(version: str) -> dict[str, Any]:
    """Return the schema of a version of the package."""
    return {
        "name": PACKAGE,
        "version": version,
        "description": "Pools of osrdyne on a RabbitMQ broker",
        "license": "MIT",
        "language": {"python": {"respectSchemaVersion": True}, "nodejs": {"respectSchemaVersion": True}},
        "resources": {token: _resource(component) for token, component in COMPONENTS.items()},
    }


def _resource(component: Component) -> dict[str, Any]:
    # `pulumi.Input` refers to `Output` by its name, which is resolved in the module that defines it.
    hints = get_type_hints(component.arguments, localns=vars(pulumi.output), include_extras=True)
    inputs = {name: {"description": text, **_taken(name, hints[name])} for name, text in component.settings.items()}
    return {
        "isComponent": True,
        "description": component.description,
        "inputProperties": inputs,
        "requiredInputs": [name for name in inputs if get_origin(hints[name]) is Required],
        "properties": {name: {"description": text, **value} for name, (text, value) in component.outputs.items()},
        "required": list(component.outputs),
    }


def _taken(name: str, hint: Any) -> dict[str, Any]:
    """Return the schema of a setting. Secrets come as outputs in many languages, all else as plain values."""
    return {**_TEXT, "secret": True} if name in HIDDEN else schema_of(hint)


def schema_of(hint: Any) -> dict[str, Any]:
    """Return the schema of values of a Python type, which are not outputs. Raises TypeError for an unknown type."""
    simple = {str: {"type": "string"}, bool: {"type": "boolean"}, Any: {"$ref": "pulumi.json#/Any"}}
    inner = get_args(hint)
    if hint in simple:
        return {**simple[hint], "plain": True}
    if get_origin(hint) is Required:
        return schema_of(inner[0])
    if get_origin(hint) is Mapping:
        return {"type": "object", "additionalProperties": schema_of(inner[1]), "plain": True}
    if get_origin(hint) is Sequence:
        return {"type": "array", "items": schema_of(inner[0]), "plain": True}
    if set(inner) == {str, int}:
        return {"oneOf": [{"type": "string"}, {"type": "integer"}], "plain": True}
    raise TypeError(f"{hint} has no schema")
