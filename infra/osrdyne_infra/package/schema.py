"""What the package takes and gives, as Pulumi makes libraries of other languages from it. Pure.

Names are those of a stack's file and of `PoolArguments`, as errors name them too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Required, get_args, get_origin, get_type_hints

import pulumi

from osrdyne_infra.components.arguments import LATE, PoolArguments
from osrdyne_infra.package.resource import PACKAGE

#: The type of the component.
POOLS = f"{PACKAGE}:index:Pools"
#: What the component takes, and what it is for. The settings of a cluster, jobs and relays are not in the package yet.
SETTINGS: Mapping[str, str] = {
    "broker": "Where the broker is, and its administrator.",
    "admin_password": "The administrator's password, which may be an output.",
    "vhost": "The vhost, which is of these pools alone.",
    "instance": "Name of this deployment, with which its broker users end.",
    "pools": "The pools, each with its name and settings.",
    "lose_messages_of": "The pools whose messages may be lost.",
    "mend_lost_queues": "Whether queues that the broker lost are declared again.",
    "rotate": "By pool and role, a text that makes a new password when it changes.",
    "adopt": "Whether what is on the broker already is taken over.",
}
#: What it gives.
OUTPUTS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "vhost": ("Name of the vhost, known once it is there.", {"type": "string"}),
    "addresses": (
        "By pool and role: where clients, workers and daemons find the broker.",
        {
            "type": "object",
            "additionalProperties": {"type": "object", "additionalProperties": {"type": "string"}},
            "secret": True,
        },
    ),
}


def schema(version: str) -> dict[str, Any]:
    """Return the schema of a version of the package."""
    # Types of Pulumi name others of their module.
    hints = get_type_hints(PoolArguments, localns=vars(pulumi.output), include_extras=True)
    inputs = {name: {"description": text, **_taken(name, hints[name])} for name, text in SETTINGS.items()}
    return {
        "name": PACKAGE,
        "version": version,
        "description": "Pools of osrdyne on a RabbitMQ broker",
        "license": "MIT",
        "language": {"python": {"respectSchemaVersion": True}, "nodejs": {"respectSchemaVersion": True}},
        "resources": {
            POOLS: {
                "isComponent": True,
                "description": "A vhost with all of its pools, on a broker that is there.",
                "inputProperties": inputs,
                "requiredInputs": [name for name in inputs if get_origin(hints[name]) is Required],
                "properties": {name: {"description": text, **kind} for name, (text, kind) in OUTPUTS.items()},
                "required": list(OUTPUTS),
            }
        },
    }


def _taken(name: str, hint: Any) -> dict[str, Any]:
    """Return the kind of a setting: all but passwords are known before anything is made."""
    return {"type": "string", "secret": True} if name in LATE else kind(hint)


def kind(hint: Any) -> dict[str, Any]:
    """Return the kind of values, not outputs, that a type of Python is for. Raises TypeError for an unknown one."""
    simple = {str: {"type": "string"}, bool: {"type": "boolean"}, Any: {"$ref": "pulumi.json#/Any"}}
    inner = get_args(hint)
    if hint in simple:
        return {**simple[hint], "plain": True}
    if get_origin(hint) is Required:
        return kind(inner[0])
    if get_origin(hint) is Mapping:
        return {"type": "object", "additionalProperties": kind(inner[1]), "plain": True}
    if get_origin(hint) is Sequence:
        return {"type": "array", "items": kind(inner[0]), "plain": True}
    if set(inner) == {str, int}:
        return {"oneOf": [{"type": "string"}, {"type": "integer"}], "plain": True}
    raise TypeError(f"{hint} has no kind in a schema")
