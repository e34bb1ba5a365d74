"""A pool on a real broker whose workers are pods: what the whole daemon needs beside the cluster."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pika
import yaml  # type: ignore[import-untyped]

from osrdyne.drivers.kubernetes import template
from testbed.pool import DaemonProcess, Pool
from tests.drivers.subjects.kubernetes import NAMESPACE, KubernetesSubject, Manifest

ROOT = Path(__file__).parents[3]

#: An image with a worker that does what a request says.
SCRIPTED_IMAGE = "osrdyne.invalid/scripted:test"
SCRIPTED_COMMAND = ["python3", "/worker/scripted_worker.py"]


@dataclass
class PodPool:
    """A pool of scripted workers in pods. `close` removes the daemon, the groups and what they need."""

    kube: KubernetesSubject
    pool: Pool
    directory: Path
    autoscaling: str = "none"
    scaler: Manifest | None = None
    secret: str = field(default_factory=lambda: f"worker-{secrets.token_hex(3)}")
    daemons: list[DaemonProcess] = field(default_factory=list)

    def __post_init__(self) -> None:
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

    def daemon(self, **tables: Any) -> DaemonProcess:
        """Starts the next daemon and waits until it leads."""
        driver = {
            "kind": "kubernetes",
            "kubeconfig": str(self.kube.kubeconfig),
            "namespace": NAMESPACE,
            "template_directory": str(self.directory / "templates"),
            "worker_secret": self.secret,
            "autoscaling": self.autoscaling,
        }
        made = DaemonProcess.of(self.pool, self.directory / f"daemon-{len(self.daemons)}", driver=driver, **tables)
        self.daemons.append(made)
        return made.start()

    def close(self) -> None:
        for daemon in self.daemons:
            if daemon.process is not None and daemon.process.poll() is None:
                daemon.stop()
        self.kube.remove_groups()
        for daemon in self.daemons:
            daemon.close()
        self.kube.kubectl("delete", "secret", self.secret, "--ignore-not-found")
        self.pool.remove_users()


def scripted_worker() -> dict[str, bytes | Path]:
    """The files of the image."""
    library = Path(pika.__file__).parent
    files: dict[str, bytes | Path] = {
        f"/worker/pika/{file.relative_to(library)}": file for file in library.rglob("*.py")
    }
    return {**files, "/worker/scripted_worker.py": ROOT / "testbed/scripted_worker.py"}
