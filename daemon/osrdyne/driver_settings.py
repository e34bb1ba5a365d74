"""The table [driver] of the daemon's settings: one model a driver, chosen by `kind`.

What a worker is started from is the template that infrastructure code declares; what stands here is where that
template is, which engine is meant, and how workers get the broker's address.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, SecretStr

from osrdyne.drivers.processes.template import SubprocessTemplate


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


class SystemdSettings(StrictModel):
    """Driver `systemd`: one instance of a template unit a group, of the system's or a user's manager."""

    kind: Literal["systemd"]


class KubernetesSettings(StrictModel):
    """Driver `kubernetes`: one Deployment a group, in one namespace."""

    kind: Literal["kubernetes"]


AnyDriverSettings = SubprocessSettings | NoopSettings | DockerSettings | SystemdSettings | KubernetesSettings
