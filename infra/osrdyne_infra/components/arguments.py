"""The settings of components, for a program of one's own: those of a stack's file, by the same names.

They are checked as those of a file are, and errors name them as `osrdyne:NAME`. docs/reference/pulumi.md has them all.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Required, TypedDict, Unpack

import pulumi

from osrdyne_infra import configuration
from osrdyne_infra.configuration import EXAMPLES, HIDDEN, NAMESPACE, BrokerStack, StackSettings
from osrdyne_infra.errors import ConfigurationError

Table = Mapping[str, Any]
#: What may be an output.
LATE = ("admin_password", "jobs_admin_password")


class PoolArguments(TypedDict, total=False):
    """What pools on a broker that is there may be given. Each value is as in a stack's file."""

    broker: Required[Table]
    admin_password: Required[pulumi.Input[str]]
    vhost: Required[str]
    instance: Required[str]
    pools: Required[Sequence[Table]]
    lose_messages_of: Sequence[str]
    mend_lost_queues: bool
    rotate: Mapping[str, Mapping[str, str | int]]
    adopt: bool
    kubernetes: Table
    kubeconfig: str
    workers: Mapping[str, Table]
    jobs: Table
    jobs_admin_password: pulumi.Input[str]
    relay: Table
    relay_key: str
    relay_s3_access_key: str
    relay_s3_secret_key: str
    pipeline: Table
    pipeline_s3_access_key: str
    pipeline_s3_secret_key: str


class BrokerArguments(TypedDict, total=False):
    """What a broker on a cluster may be given."""

    broker_deployment: Required[Table]
    admin_password: Required[str]
    kubernetes: Required[Table]
    kubeconfig: str
    adopt: bool


def pool_settings(**given: Unpack[PoolArguments]) -> StackSettings:
    """Return the settings of pools. Both passwords of administrators may be outputs. Raises ConfigurationError."""
    values: dict[str, Any] = {**given}
    late: dict[str, Any] = {name: values[name] for name in LATE if isinstance(values.get(name), pulumi.Output)}
    made = _parsed({**values, **dict.fromkeys(late, "known later")})
    assert isinstance(made, StackSettings)
    return replace(made, **late)


def broker_settings(**given: Unpack[BrokerArguments]) -> BrokerStack:
    """Return the settings of a broker on a cluster. Raises ConfigurationError."""
    made = _parsed({**given})
    assert isinstance(made, BrokerStack)
    return made


def _parsed(values: Mapping[str, Any]) -> StackSettings | BrokerStack:
    """Return what the texts say that Pulumi would have of a stack's file."""
    texts = {f"{NAMESPACE}:{name}": _text(name, value) for name, value in values.items()}
    return configuration.parse(texts, frozenset(f"{NAMESPACE}:{name}" for name in HIDDEN))


def _text(name: str, value: object) -> str:
    try:
        return value if isinstance(value, str) else json.dumps(value)
    except TypeError as error:
        problem = f"is not plain data ({error}); of all settings, only {' and '.join(LATE)} may be outputs"
        raise ConfigurationError(f"{NAMESPACE}:{name}", problem, EXAMPLES.get(name, EXAMPLES["pools"])) from None
