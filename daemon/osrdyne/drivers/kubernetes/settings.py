"""The settings of the driver `kubernetes`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from osrdyne.drivers.base import Driver
from osrdyne.drivers.base_settings import DriverSettings
from osrdyne_pool.settings import PoolSettings
from osrdyne_runtime.settings.model import Seconds


class KubernetesSettings(DriverSettings):
    """Driver `kubernetes`: one Deployment a group, in one namespace."""

    kind: Literal["kubernetes"]
    #: Namespace of the workers; None for the one that the daemon's pod, or the kubeconfig's context, is in.
    namespace: str | None = None
    #: File that says how the API server is reached; None inside a cluster.
    kubeconfig: Path | None = None
    #: Directory with deployment.yaml, and hpa.yaml or scaledobject.yaml; see `template`.
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

    def open(self, pool: PoolSettings) -> Driver:
        from osrdyne.drivers.kubernetes import template
        from osrdyne.drivers.kubernetes.api import Api
        from osrdyne.drivers.kubernetes.driver import KubernetesDriver
        from osrdyne.drivers.kubernetes.manifests import Manifests

        templates = template.load(self.template_directory, autoscaling=self.autoscaling, container=self.container)
        manifests = Manifests(pool, templates, self.worker_secret, self.worker_secret_key)
        api = Api(kubeconfig=self.kubeconfig, namespace=self.namespace, timeout=self.timeout)
        return KubernetesDriver(manifests, api, timeout=self.timeout)

    def files(self) -> Iterable[Path]:
        return [self.template_directory / name for name in ("deployment.yaml", "hpa.yaml", "scaledobject.yaml")]
