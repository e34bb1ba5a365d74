"""What the program declares on a cluster, without an engine: every resource with its inputs, as Pulumi would get it."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pulumi
import pytest

from osrdyne_infra import Broker, ClusterProvider, DeployedBroker, JobsDatabase, Pool, Relay, configuration
from osrdyne_infra.broker import live
from osrdyne_infra.broker.live import Live
from osrdyne_infra.cluster import live as live_cluster
from osrdyne_infra.configuration import BrokerStack, StackSettings
from osrdyne_relay.http.access import sha256_of

Inputs = dict[str, Any]

WHOLE: Mapping[str, Any] = {
    "broker": {"management": "http://127.0.0.1:1", "inside_management": "http://broker:15672", "amqp": "amqp://broker"},
    "vhost": "trains/one",
    "instance": "Test 1",
    "pools": [{"name": "core"}, {"name": "other"}],
    "kubernetes": {"namespace": "rail", "daemon": {"image": "osrdyne.invalid/daemon:test"}},
    "workers": {"core": {"image": "osrdyne.invalid/core:1"}, "other": {"image": "osrdyne.invalid/other:1"}},
}
SECRETS = frozenset(f"osrdyne:{name}" for name in configuration.HIDDEN)
#: The first of two pools has jobs.
JOBS: Mapping[str, Any] = {
    "pools": [{"name": "core", "jobs": {"redo": {"interval": 45, "lease": 100}}}, {"name": "other"}],
    "jobs": {"database": "postgresql://127.0.0.1:1", "inside_database": "postgresql://db:5433", "admin": "postgres"},
    "jobs_admin_password": "hidden-admin",
}
TOKEN = "a-token-of-a-worker"
#: A relay, at which the workers of the first of two pools poll.
RELAY: Mapping[str, Any] = {
    "relay": {
        "redis": {"image": "redis.invalid/redis:7.4"},
        "clients": {"lax": {"token_sha256": sha256_of(TOKEN), "serve": ["core/LAX"]}},
        "settings": {"timings": {"retry_for": 20}, "serve": {"plain_http": True, "grace": 40}},
        "pools": ["core"],
    },
    "workers": {"other": WHOLE["workers"]["other"]},
}


def settings(**changes: Any) -> StackSettings:
    """The settings of a stack with two pools on a cluster, with these changes; None leaves one out."""
    given = {**WHOLE, "admin_password": "hidden-word", **changes}
    given["broker"] = {"admin": "root", **given["broker"]}
    made = configuration.parse(raw(given), SECRETS)
    assert isinstance(made, StackSettings)
    return made


def broker_settings(**deployment: Any) -> BrokerStack:
    """The settings of a stack that deploys a broker."""
    whole = {"kind": "statefulset", "admin": "root", "image": "rabbitmq:4.3-management", "storage": "1Gi", **deployment}
    given = {"broker_deployment": whole, "kubernetes": {"namespace": "rail"}, "admin_password": "hidden-word"}
    made = configuration.parse(raw(given), SECRETS)
    assert isinstance(made, BrokerStack)
    return made


def raw(values: Mapping[str, Any]) -> dict[str, str]:
    """Configuration as Pulumi hands it over: texts, and JSON of everything else."""
    kept = {name: value for name, value in values.items() if value is not None}
    return {f"osrdyne:{name}": value if isinstance(value, str) else json.dumps(value) for name, value in kept.items()}


class DeclaredObjects(pulumi.runtime.Mocks):
    """Keeps what is declared on the cluster, by kind and name."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], Inputs] = {}
        #: What is asked of database servers, by name.
        self.databases: dict[str, Inputs] = {}
        #: Everything, by type and name.
        self.everything: dict[tuple[str, str], Inputs] = {}

    def new_resource(self, args: pulumi.runtime.MockResourceArgs) -> tuple[str, Inputs]:
        kind, outputs = args.typ.rpartition(":")[2], dict(args.inputs)
        self.everything[args.typ, args.name] = args.inputs
        if kind == "Password":
            outputs["password"] = f"word-of-{args.name}"
        if kind == "JobsDatabase" and "admin" in args.inputs:
            self.databases[args.name] = args.inputs
        if args.typ.startswith("kubernetes:"):
            self.objects[kind, args.inputs["metadata"]["name"]] = args.inputs
        return f"{args.name}-id", outputs

    def call(self, args: pulumi.runtime.MockCallArgs) -> tuple[Inputs, list[tuple[str, str]] | None]:
        return {}, None

    def texts(self, name: str) -> dict[str, str]:
        """What a Secret holds, in the clear."""
        # Pulumi marks what is secret by a table around it.
        data = self.objects["Secret", name]["data"]["value"]
        return {key: base64.b64decode(text).decode() for key, text in data.items()}


@contextmanager
def own_loops() -> Iterator[None]:
    """Close every event loop that Pulumi's library makes and leaves open, one in each of its threads."""
    made: list[asyncio.AbstractEventLoop] = []
    make = asyncio.new_event_loop

    def noting() -> asyncio.AbstractEventLoop:
        made.append(make())
        return made[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asyncio, "new_event_loop", noting)
        asyncio.set_event_loop(noting())
        yield
        made[0].run_until_complete(made[0].shutdown_default_executor())
        for loop in made:
            loop.close()
        asyncio.set_event_loop(None)


def declared(declare: Callable[[], None]) -> DeclaredObjects:
    """Run a part of the program and return what it declares, where broker and cluster have nothing."""
    found = DeclaredObjects()
    with own_loops(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(live, "read", lambda *_: Live())
        patch.setattr(live_cluster, "check", lambda *_: [])
        patch.setattr(live_cluster, "check_broker", lambda *_: None)
        pulumi.runtime.set_mocks(found, project="osrdyne", stack="test")
        run: Any = pulumi.runtime.test
        run(declare)()
    return found


def pools(given: StackSettings) -> DeclaredObjects:
    """What the pools of a stack have, on the broker and on the cluster."""

    def declare() -> None:
        cluster = ClusterProvider("cluster", given)
        broker = Broker("vhost", given)
        relay = Relay("relay", given, cluster) if given.relay else None
        for pool in given.pools:
            database = JobsDatabase(pool.name, given) if pool.jobs is not None else None
            Pool(pool.name, broker, cluster=cluster, jobs=database, relay=relay)

    return declared(declare)


def deployed(given: BrokerStack) -> DeclaredObjects:
    """What a stack has that deploys a broker."""

    def declare() -> None:
        DeployedBroker("broker", given, ClusterProvider("cluster", given))

    return declared(declare)


__all__ = ["DeclaredObjects", "broker_settings", "declared", "deployed", "pools", "settings"]
