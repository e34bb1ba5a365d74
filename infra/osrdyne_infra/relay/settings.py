"""What the configuration says of the relay: its Redis, its nodes, who may use them, and whose workers poll there. Pure.

The nodes' own settings and their access file are checked by the models that the nodes have.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, model_validator

from osrdyne_infra import checks
from osrdyne_infra.checks import Filled, Image, InvalidValue, Text
from osrdyne_infra.cluster.settings import PullPolicy, Resources
from osrdyne_protocol.errors import SettingsError
from osrdyne_relay.http.access import Access, Grant
from osrdyne_relay.settings import RelaySettings, ServeSettings
from osrdyne_runtime.settings.model import StrictModel

#: Name of the namespace, after that of the cluster's settings and a hyphen. No pool has it.
NAMESPACE = "relay"
#: Where a node's container finds what the stack gives it.
SETTINGS = "/etc/osrdyne/relay"
CREDENTIALS = "/etc/osrdyne/redis"
CERTIFICATE = "/etc/osrdyne/certificate"
STREAMS = "/etc/osrdyne/streams"
ADDRESS_FILE = "relay.address"
PORT = 8044
REDIS_PORT = 6379
#: By which the pods are found.
NODES: Mapping[str, str] = {"app.kubernetes.io/name": "osrdyne-relay", "app.kubernetes.io/instance": "relay"}
REDIS: Mapping[str, str] = {"app.kubernetes.io/name": "osrdyne-relay-redis", "app.kubernetes.io/instance": "relay"}
#: Settings of a node that the stack gives, by table.
_OURS: Mapping[str, tuple[str, ...]] = {
    "redis": ("url", "url_file", "user", "password_file"),
    "serve": ("host", "port", "access_file", "certificate_file", "key_file", "client_ca_file"),
    "streams.s3": ("access_key_file", "secret_key_file", "ca_file"),
}
#: Files of the bucket's keys and of its server's CA, and the settings of a node that name them.
S3_FILES: Mapping[str, str] = {"access_key": "access_key_file", "secret_key": "secret_key_file", "ca.pem": "ca_file"}


class RedisPod(StrictModel):
    """The Redis of the relay, which keeps nothing."""

    image: Image
    command: tuple[Text, ...] = ("redis-server",)
    pull_policy: PullPolicy = "IfNotPresent"
    resources: Resources = Field(
        default_factory=lambda: {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"memory": "512Mi"}}
    )


class NodePods(StrictModel):
    """The nodes, and the Service by which others reach them."""

    #: That of the daemons by default, which has them.
    image: Image = ""
    replicas: Annotated[int, BeforeValidator(checks.integer(1, 20))] = 2
    pull_policy: PullPolicy = "IfNotPresent"
    resources: Resources = Field(
        default_factory=lambda: {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}}
    )
    service: Annotated[str, BeforeValidator(checks.choice("ClusterIP", "NodePort", "LoadBalancer"))] = "ClusterIP"
    #: Of the Service, as a load balancer wants them.
    annotations: dict[str, Text] = Field(default_factory=dict)


class RelayPlace(StrictModel):
    """A relay on the cluster."""

    redis: RedisPod
    nodes: NodePods = Field(default_factory=NodePods)
    #: The access file's tables.
    clients: dict[str, Any] = Field(default_factory=dict)
    #: PEM file of the nodes' certificate, whose key is a setting of its own; and of the CA of clients' certificates.
    certificate: Filled = ""
    clients_cacertfile: Filled = ""
    #: PEM file of the CA of the bucket's server, where that is a private one.
    streams_cacertfile: Filled = ""
    #: Pools whose workers poll at the nodes. Their daemons start none.
    pools: tuple[Text, ...] = ()
    #: Further settings of the nodes, the table [relay] of docs/reference/relay-settings.md.
    settings: dict[str, Any] = Field(default_factory=dict)
    #: Another text is another password of Redis.
    rotate: Text = "1"
    #: The key of the certificate, and both of the bucket, which are settings of their own.
    key: str = Field(default="", repr=False, exclude=True)
    s3_access_key: str = Field(default="", repr=False, exclude=True)
    s3_secret_key: str = Field(default="", repr=False, exclude=True)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.clients_cacertfile and not self.certificate:
            raise InvalidValue("needs `certificate`: without TLS, no client shows one", ".clients_cacertfile")
        for table, ours in _OURS.items():
            if not isinstance(self.settings.get(table, {}), Mapping):
                raise InvalidValue("is not a table of a node's settings", f".settings.{table}")
            for name in _table(self.settings, table):
                if name in ours:
                    raise InvalidValue("is made from other settings; leave it out", f".settings.{table}.{name}")
        self._check_streams()
        try:
            RelaySettings.from_mapping(self.node_settings())
        except SettingsError as error:
            raise InvalidValue(error.problem, error.path.replace("relay.", ".settings.", 1)) from None
        if not self.certificate and not self.node().plain_http:
            problem = "is missing; give it, or set settings.serve.plain_http where a proxy before the nodes has TLS"
            raise InvalidValue(problem, ".certificate")
        try:
            Access({name: Grant.from_mapping(client, path=name) for name, client in self.clients.items()})
        except SettingsError as error:
            raise InvalidValue(error.problem, f".clients.{error.path}") from None
        except ValueError as error:
            raise InvalidValue(str(error), ".clients") from None
        return self

    def _check_streams(self) -> None:
        if "directory" in _table(self.settings, "streams"):
            problem = "is not a place that all pods have; use a bucket: streams.s3"
            raise InvalidValue(problem, ".settings.streams.directory")
        if self.streams_cacertfile and not self.bucket:
            raise InvalidValue("is for data streams in a bucket: give settings.streams.s3, too", ".streams_cacertfile")

    @property
    def bucket(self) -> str | None:
        """Address of the server whose bucket has the data streams; None without one."""
        return _table(self.settings, "streams.s3").get("endpoint")

    @property
    def prefix(self) -> str:
        """Of Redis's keys; it is also the name of the nodes' user there."""
        return RelaySettings.from_mapping(self.node_settings()).prefix

    def node(self) -> ServeSettings:
        """Return how a node serves."""
        found = RelaySettings.from_mapping(self.node_settings()).serve
        assert found is not None
        return found

    def daemon_settings(self, address_file: str) -> dict[str, Any]:
        """Return the settings by which a pool's daemon uses the relay, whose Redis has the address in a file."""
        # A pool's requests and replies have no data streams.
        own = {name: value for name, value in self.settings.items() if name not in ("serve", "streams")}
        return {**own, "redis": {**self.settings.get("redis", {}), "url_file": address_file}}

    def node_settings(self) -> dict[str, Any]:
        """Return the table [relay] of a node."""
        serve = {**self.settings.get("serve", {}), "host": "0.0.0.0", "port": PORT}
        serve["access_file"] = f"{SETTINGS}/access.toml"
        if self.certificate:
            serve |= {"certificate_file": f"{CERTIFICATE}/tls.crt", "key_file": f"{CERTIFICATE}/tls.key"}
        if self.clients_cacertfile:
            serve["client_ca_file"] = f"{CERTIFICATE}/clients-ca.pem"
        made = {**self.daemon_settings(f"{CREDENTIALS}/{ADDRESS_FILE}"), "serve": serve}
        if "streams" in self.settings:
            made["streams"] = self.settings["streams"]
        if self.bucket:
            files = {setting: f"{STREAMS}/{file}" for file, setting in S3_FILES.items()}
            if not self.streams_cacertfile:
                del files["ca_file"]
            made["streams"] = {**made["streams"], "s3": {**made["streams"]["s3"], **files}}
        return made


def _table(settings: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    """Return a table of settings, which may not be there, or be something else."""
    found: Any = settings
    for name in path.split("."):
        found = found.get(name, {}) if isinstance(found, Mapping) else {}
    return found if isinstance(found, Mapping) else {}
