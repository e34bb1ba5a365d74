"""What a pool's programs read: settings and worker templates as ConfigMaps, addresses with passwords as Secrets.

All of it is mounted as files. A program reads a changed address from the same file. So only settings and templates
count for `digest`, and a daemon restarts when its digest changes.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pulumi
import pulumi_kubernetes as kubernetes
from pulumi_kubernetes.core import v1 as core

from osrdyne_infra.cluster import replicated
from osrdyne_infra.cluster.access import Place, part, service_names
from osrdyne_infra.configuration import StackSettings
from osrdyne_infra.errors import ConfigurationError
from osrdyne_infra.ordering import inside
from osrdyne_infra.pool.users import AUTHORITY
from osrdyne_infra.pool.worker_templates import SECRET_KEY, templates, worker_secret
from osrdyne_pool.settings import PoolSettings
from osrdyne_pool.settings_file import pool_table
from osrdyne_protocol.errors import SettingsError
from osrdyne_runtime.settings import secrets
from osrdyne_runtime.settings_text import to_toml

#: Where the daemon's container finds what is made here.
SETTINGS = "/etc/osrdyne/settings"
WORKERS = "/etc/osrdyne/workers"
CREDENTIALS = "/etc/osrdyne/credentials"
#: Port of the daemon's status endpoints.
STATUS_PORT = 8042
#: Among the daemon's credentials, the address of the relay's Redis.
RELAY_FILE = "relay.address"


def daemon_service(pool: str) -> str:
    """Return the name of the Service of a pool's daemons, which is that of their Deployment, too."""
    return f"{pool}-daemon"


class PoolConfig(pulumi.ComponentResource):
    """ConfigMaps and Secrets of one pool. `addresses` are those of `PoolUsers`.

    `redis` is the address of the relay's Redis, where the pool's workers poll there.
    """

    def __init__(
        self,
        settings: StackSettings,
        pool: PoolSettings,
        addresses: Mapping[str, pulumi.Output[str]],
        redis: pulumi.Output[str] | None,
        place: Place,
        parent: pulumi.ComponentResource,
    ) -> None:
        super().__init__("osrdyne:kubernetes:PoolConfig", place.own(pool.name), None, inside(parent))
        self._place = place
        maps = {f"{pool.name}-settings": {"settings.toml": daemon_settings(settings, pool)}}
        #: What is mounted, by the path where it is: names of ConfigMaps.
        self.maps = {SETTINGS: f"{pool.name}-settings"}
        if not settings.polls(pool.name):
            worker = settings.workers[pool.name]
            maps[f"{pool.name}-workers"] = templates(pool.name, worker, jobs=pool.jobs is not None)
            self.maps[WORKERS] = f"{pool.name}-workers"
        #: Folder of the broker's CA, where it has its own, and the ConfigMap.
        self.authority: dict[str, str] = {}
        if settings.broker.cacertfile:
            folder, _, file = AUTHORITY.rpartition("/")
            maps[f"{pool.name}-broker-ca"] = {file: authority(settings)}
            self.authority = {folder: f"{pool.name}-broker-ca"}
            self.maps |= self.authority
        #: Changes with what a daemon reads at its start only.
        read = [maps, settings.relay.rotate] if settings.relay and redis is not None else maps
        self.digest = hashlib.sha256(json.dumps(read, sort_keys=True).encode()).hexdigest()[:32]
        #: Name of the Secret with the daemon's addresses.
        self.secret = f"{pool.name}-daemon"
        daemon = {f"{name}.uri": addresses[name] for name in ("daemon", "daemon-management")}
        if redis is not None:
            # The daemon itself takes requests, as a worker.
            daemon |= {"worker.uri": addresses["worker"], RELAY_FILE: redis}
        self.made: list[pulumi.Resource] = [
            *(self._map(name, data) for name, data in maps.items()),
            self._secret(self.secret, daemon),
            self._secret(worker_secret(pool.name), {SECRET_KEY: addresses["worker"]}),
        ]
        self.register_outputs({"digest": self.digest})

    def _map(self, name: str, data: Mapping[str, str]) -> pulumi.Resource:
        return kubernetes.core.v1.ConfigMap(
            self._place.own(name), metadata=self._place.metadata(name), data=data, opts=part(self)
        )

    def _secret(self, name: str, data: Mapping[str, pulumi.Output[str]]) -> pulumi.Resource:
        return secret(name, data, self._place, part(self))


def secret(
    name: str, data: Mapping[str, pulumi.Output[str]], place: Place, opts: pulumi.ResourceOptions
) -> kubernetes.core.v1.Secret:
    """Return a Secret of texts. As `data`, which is what a cluster shows of it, and so is hidden in the state, too."""
    hidden = {key: text.apply(lambda clear: base64.b64encode(clear.encode()).decode()) for key, text in data.items()}
    return kubernetes.core.v1.Secret(
        place.own(name), metadata=place.metadata(name), type="Opaque", data=hidden, opts=opts
    )


def of_program(
    name: str,
    pool: PoolSettings,
    address: Mapping[str, pulumi.Output[str]],
    place: Place,
    parent: pulumi.ComponentResource,
) -> tuple[str, list[pulumi.Resource]]:
    """Declare what a program reads that is not the pool's daemon, such as redo: settings, and an address of the broker.

    Return the settings, and a ConfigMap and a Secret of this name.
    """
    settings = to_toml({"pool": pool_table(pool)})
    made = kubernetes.core.v1.ConfigMap(
        place.own(name), metadata=place.metadata(name), data={"settings.toml": settings}, opts=part(parent)
    )
    return settings, [made, secret(name, address, place, part(parent))]


def volumes(
    name: str, authority: Mapping[str, str], *own: core.VolumeArgs, files: tuple[str, ...] = ()
) -> list[core.VolumeArgs]:
    """Return the volumes of such a program, which has others of its own. `authority` is that of `PoolConfig`.

    `files` are those of the Secret that the program reads; all by default.
    """
    found = [replicated.config_map("settings", name), replicated.secret("credentials", name, *files), *own]
    return [*found, *(replicated.config_map("broker", file) for file in authority.values())]


def places(authority: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """Return the volume at each path of such a program."""
    return {SETTINGS: "settings", CREDENTIALS: "credentials", **own, **dict.fromkeys(authority, "broker")}


def daemon_settings(settings: StackSettings, pool: PoolSettings) -> str:
    """Return the daemon's settings file."""
    assert settings.cluster is not None
    daemon = settings.cluster.daemon
    names = service_names(daemon_service(pool.name), settings.cluster.pool_namespace(pool.name))
    tables: dict[str, dict[str, Any]] = {
        # Jobs are not the daemon's matter: what changes there restarts redo only.
        "pool": pool_table(replace(pool, jobs=None)),
        "broker": {
            "amqp_uri_file": f"{CREDENTIALS}/daemon.uri",
            "management_uri_file": f"{CREDENTIALS}/daemon-management.uri",
            "statistics_interval": settings.broker.statistics_interval,
        },
        "driver": _driver(settings, pool),
        "limits": dict(daemon.limits),
        "intervals": dict(daemon.intervals),
        # The kubelet asks for it at the pod's address, and programs of the cluster by a name of its Service.
        "status": {"host": "0.0.0.0", "port": STATUS_PORT, "names": [*names, *daemon.status_names]},
    }
    return to_toml(tables)


def _driver(settings: StackSettings, pool: PoolSettings) -> dict[str, Any]:
    if settings.relay is not None and settings.polls(pool.name):
        relay = settings.relay.daemon_settings(f"{CREDENTIALS}/{RELAY_FILE}")
        return {"kind": "relay", "worker_amqp_uri_file": f"{CREDENTIALS}/worker.uri", "relay": relay}
    return {
        "kind": "kubernetes",
        "template_directory": WORKERS,
        "autoscaling": settings.workers[pool.name].autoscaling,
        "worker_secret": worker_secret(pool.name),
        "worker_secret_key": SECRET_KEY,
    }


def authority(settings: StackSettings) -> str:
    """Return the certificate of the CA that vouches for the broker. Raises ConfigurationError."""
    return certificate(settings.broker.cacertfile, "broker")


def certificate(file: str, setting: str, name: str = "cacertfile") -> str:
    """Return what the PEM file holds that a setting names. Raises ConfigurationError."""
    try:
        return secrets.text_in(file, f"osrdyne:{setting}.{name}")
    except SettingsError as error:
        problem = f"{error.problem}; give the path of a PEM file"
        raise ConfigurationError(error.path, problem, f"osrdyne:{setting}: {{..., {name}: /etc/{name}.pem}}") from None
