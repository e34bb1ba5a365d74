"""The table [driver] of the daemon's settings: one model a driver, chosen by `kind`.

What a worker is started from is the template that infrastructure code declares; what stands here is where that
template is, which engine is meant, and how workers get the broker's address.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr

from osrdyne.drivers.subprocess.template import SubprocessTemplate
from osrdyne.settings.seconds import Seconds


class StrictModel(BaseModel):
    """A table of settings: an unknown key is an error, and nothing changes it later."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class NoopSettings(StrictModel):
    """Driver `noop`: somebody else starts and stops the workers."""

    kind: Literal["noop"]


class SubprocessSettings(StrictModel):
    """Driver `subprocess`: one process a group, on this machine."""

    kind: Literal["subprocess"]
    #: AMQP address that workers get, or the file that holds it.
    worker_amqp_uri: SecretStr | None = None
    worker_amqp_uri_file: Path | None = None
    #: Where the driver keeps what it started, and the workers' output.
    state_directory: Path = Path("/var/lib/osrdyne")
    #: How a worker is started; see `SubprocessTemplate`.
    template: SubprocessTemplate


class DockerSettings(StrictModel):
    """Driver `docker`: one container a group, on one Docker engine."""

    kind: Literal["docker"]
    #: JSON or TOML file with the body of the engine's container create; see `containers/template.py`.
    template_file: Path
    #: Address of the engine; None for that of the environment (DOCKER_HOST and the variables beside it).
    host: str | None = None
    #: File with the AMQP address that workers get. Their containers see the directory that it is in.
    worker_amqp_uri_file: Path


class SystemdSettings(StrictModel):
    """Driver `systemd`: one instance of a template unit a group, of the system's or a user's manager."""

    kind: Literal["systemd"]
    #: Name of the template unit, such as `osrdyne-core@.service`.
    unit: Annotated[str, Field(pattern=r"^[A-Za-z0-9:_.-]{1,150}@\.service$")]
    #: Directory of the environment files that the unit reads, of the daemon alone.
    environment_directory: Path = Path("/run/osrdyne")
    #: Whose units they are: the machine's, or those of the user whom the daemon runs as.
    manager: Literal["system", "user"] = "system"
    #: D-Bus address of the bus that the manager is on; None for the usual one.
    bus_address: str | None = None
    #: AMQP address that workers get, or the file that holds it.
    worker_amqp_uri: SecretStr | None = None
    worker_amqp_uri_file: Path | None = None


class KubernetesSettings(StrictModel):
    """Driver `kubernetes`: one Deployment a group, in one namespace."""

    kind: Literal["kubernetes"]
    #: Namespace of the workers; None for the one that the daemon's pod, or the kubeconfig's context, is in.
    namespace: str | None = None
    #: File that says how the API server is reached; None inside a cluster.
    kubeconfig: Path | None = None
    #: Directory with deployment.yaml, and hpa.yaml or scaledobject.yaml; see `deployments.template`.
    template_directory: Path
    #: Who owns the number of workers of a group.
    autoscaling: Literal["none", "hpa", "keda"] = "none"
    #: Secret in the workers' namespace, and the key in it that holds their AMQP address.
    worker_secret: str
    worker_secret_key: str = "amqp-uri"  # noqa: S105 - the name of what holds it
    #: The container that is the worker; None for the first.
    container: str | None = None
    #: Longest wait for one answer of the API server, in seconds.
    timeout: Seconds = 10.0


AnyDriverSettings = SubprocessSettings | NoopSettings | DockerSettings | SystemdSettings | KubernetesSettings
