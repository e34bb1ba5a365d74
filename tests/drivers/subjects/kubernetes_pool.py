"""A pool on a real broker whose workers are pods: what the whole daemon needs beside the cluster."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

import pika
import yaml  # type: ignore[import-untyped]

from osrdyne.drivers.kubernetes import template
from testbed.pool import Pool
from tests.drivers.subjects.engine_pool import ROOT, EnginePool
from tests.drivers.subjects.kubernetes import NAMESPACE, KubernetesSubject, Manifest

#: An image with a worker that does what a request says.
SCRIPTED_IMAGE = "osrdyne.invalid/scripted:test"
SCRIPTED_COMMAND = ["python3", "/worker/scripted_worker.py"]


class PodPool(EnginePool):
    """A pool of scripted workers in pods. `close` also removes the groups and what they need."""

    def __init__(
        self,
        kube: KubernetesSubject,
        pool: Pool,
        directory: Path,
        *,
        autoscaling: str = "none",
        scaler: Manifest | None = None,
    ) -> None:
        super().__init__(pool, directory)
        self.kube = kube
        self.autoscaling, self.scaler = autoscaling, scaler
        self.secret = f"worker-{secrets.token_hex(3)}"
        cluster = self.kube.cluster
        cluster.forward(self.pool.broker.amqp_port)
        cluster.load_image(SCRIPTED_IMAGE, scripted_worker(), SCRIPTED_COMMAND)
        address = self.reachable(self.pool.uri(self.pool.users.worker))
        self.keep_secret(self.secret, "amqp-uri", address)
        self.declare()

    def reachable(self, address: str) -> str:
        """An address of this machine's as pods reach it."""
        return address.replace("127.0.0.1", self.kube.cluster.gateway)

    def keep_secret(self, name: str, key: str, text: str) -> None:
        metadata = {"name": name, "namespace": NAMESPACE}
        made = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {key: text}}
        self.kube.cluster.apply(made)

    def declare(self, **worker: Any) -> None:
        """Writes the templates, with other fields of the worker's container."""
        made = self.kube.declared(**{"image": SCRIPTED_IMAGE, "command": SCRIPTED_COMMAND, **worker})
        files = self.directory / "templates"
        files.mkdir(exist_ok=True)
        (files / "deployment.yaml").write_text(yaml.safe_dump(made))
        if self.scaler is not None:
            (files / template.SCALERS[self.autoscaling][0]).write_text(yaml.safe_dump(self.scaler))

    def driver(self, directory: Path) -> dict[str, Any]:
        return {
            "kind": "kubernetes",
            "kubeconfig": str(self.kube.kubeconfig),
            "namespace": NAMESPACE,
            "template_directory": str(self.directory / "templates"),
            "worker_secret": self.secret,
            "autoscaling": self.autoscaling,
        }

    def clean_up(self) -> None:
        self.kube.remove_groups()
        for daemon in self.daemons:
            daemon.close()
        self.kube.kubectl("delete", "secret", self.secret, "--ignore-not-found")


def scripted_worker() -> dict[str, bytes | Path]:
    """The files of the image."""
    library = Path(pika.__file__).parent
    files: dict[str, bytes | Path] = {
        f"/worker/pika/{file.relative_to(library)}": file for file in library.rglob("*.py")
    }
    return {**files, "/worker/scripted_worker.py": ROOT / "lab/testbed/scripted_worker.py"}
