"""`pulumi up` of the stack `staging-broker` on a real cluster: its RabbitMQ serves a pool, and keeps what it holds.

Nothing is pulled: the image is made of Debian's RabbitMQ 4.3, in the shape of the official one (its user, its folders
and files of configuration, and the server in the foreground).
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from osrdyne_protocol.names import PoolNames
from testbed.broker import root_file_system
from testbed.foreign_client import ForeignClient
from testbed.kubernetes.cluster import Cluster
from testbed.pulumi.stack import Project
from testbed.waiting import until
from tests.infra.built_images import DAEMON
from tests.infra.clustered import RESOURCES, SCRIPTED

# The first of them may have to wait for the cluster and the images.
pytestmark = [pytest.mark.xdist_group("cluster"), pytest.mark.full, pytest.mark.timeout(1800)]

IMAGE = "osrdyne.invalid/rabbitmq:4.3"
#: Of the official image.
USER = 999
ENTRYPOINT = b"""#!/bin/sh
export HOME=/var/lib/rabbitmq RABBITMQ_LOGS=- RABBITMQ_PID_FILE=/var/lib/rabbitmq/pid
exec /usr/lib/rabbitmq/bin/rabbitmq-server
"""
ADMIN = "osrdyne-admin"
#: Name of the volume, of its storage class, and of its folder.
DISK = "disk-of-a-test"
NAMES = PoolNames("core")


@dataclass
class DeployedBroker:
    """A broker on a cluster, reached from this machine as docs/howto/pulumi-kubernetes.md does it."""

    cluster: Cluster
    namespace: str
    vhost: str
    password: str

    def service(self, port: int) -> str:
        """Where pods reach it."""
        return f"broker.{self.namespace}.svc:{port}"

    @contextlib.contextmanager
    def forwarded(self, port: int) -> Iterator[str]:
        words = ["--namespace", self.namespace, "port-forward", "service/broker", f":{port}"]
        with self.cluster.running_kubectl(*words) as process:
            try:
                assert process.stdout
                found = re.search(r"127\.0\.0\.1:\d+(?= ->)", process.stdout.readline())
                assert found, "the broker's port is not forwarded; what kubectl says is on standard error"
                yield found[0]
            finally:
                process.terminate()

    @contextlib.contextmanager
    def channel(self) -> Iterator[BlockingChannel]:
        """Of its administrator, in the pool's vhost."""
        with self.forwarded(5672) as here:
            uri = f"amqp://{ADMIN}:{self.password}@{here}/{self.vhost}"
            with pika.BlockingConnection(pika.URLParameters(uri)) as connection:
                yield connection.channel()

    def keep(self, body: bytes) -> None:
        """Put a message into the poison inventory."""
        with self.channel() as channel:
            channel.confirm_delivery()
            channel.basic_publish("", NAMES.poison_queue, body, pika.BasicProperties(delivery_mode=2), mandatory=True)

    def kept(self) -> list[bytes]:
        """What is in the poison inventory."""
        with self.channel() as channel:
            return [body for _, _, body in iter(lambda: channel.basic_get(NAMES.poison_queue), (None, None, None))]

    def ask(self, address: str, key: str) -> str | None:
        """The status of the answer to a request of a client whose address as pods have it is given."""
        with self.forwarded(5672) as here:
            client = ForeignClient(address.replace(self.service(5672), here), NAMES.request_exchange)
            try:
                return client.ask(key, timeout=120).status
            finally:
                client.close()

    def pod(self) -> dict[str, Any]:
        text = self.cluster.kubectl("-n", self.namespace, "get", "pods", "-o", "json")
        (found,) = json.loads(text)["items"] or [{}]
        return dict(found)

    def until_ready(self, *, after: str | None = None) -> None:
        """Wait for a pod that serves, and is not the one with the uid `after`."""

        def ready() -> bool:
            pod = self.pod()
            conditions = {
                condition["type"]: condition["status"] for condition in pod.get("status", {}).get("conditions", ())
            }
            return conditions.get("Ready") == "True" and pod["metadata"]["uid"] != after

        until(ready, within=240, every=0.5, what="the broker's pod to be ready")

    def remove(self) -> None:
        for name in self.cluster.kubectl("get", "namespaces", "-o", "name").split():
            if name.startswith(f"namespace/{self.namespace}"):
                self.cluster.kubectl("delete", name, "--wait=false")


@contextlib.contextmanager
def disk(cluster: Cluster, namespace: str) -> Iterator[None]:
    """A volume for the broker's claim, in place of what a storage class would make."""
    folder = cluster.directory / DISK
    superuser = [] if os.geteuid() == 0 else ["sudo", "-n"]
    owner = ["--owner", str(USER), "--group", str(USER)]
    subprocess.run([*superuser, "install", "--directory", "--mode", "700", *owner, str(folder)], check=True)
    cluster.apply(
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": DISK},
            "provisioner": "kubernetes.io/no-provisioner",
            "allowVolumeExpansion": True,
        }
    )
    cluster.apply(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": DISK},
            "spec": {
                "capacity": {"storage": "1Gi"},
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": DISK,
                "hostPath": {"path": str(folder)},
                "claimRef": {"namespace": namespace, "name": "data-broker-0"},
            },
        }
    )
    try:
        yield
    finally:
        cluster.kubectl("delete", "persistentvolume", DISK, "--wait=false")
        cluster.kubectl("delete", "storageclass", DISK)


def load_image(cluster: Cluster) -> None:
    root, files = Path(root_file_system("4.3")), {"/usr/local/bin/entrypoint": ENTRYPOINT}
    for name, ids in (("passwd", f"{USER}:{USER}"), ("group", str(USER))):
        text = (root / "etc" / name).read_text()
        files[f"/etc/{name}"] = re.sub(r"^(rabbitmq:x):[\d:]+:", rf"\1:{ids}:", text, flags=re.MULTILINE).encode()
    cluster.load_root(IMAGE, root, files, ["/usr/local/bin/entrypoint"])


def project(directory: Path, stack: str) -> Project:
    directory.mkdir()
    return Project(directory, passphrase=secrets.token_hex(8), stack=stack)


def up(made: Project, *words: str) -> None:
    made.must("up", "--yes", "--skip-preview", "--stack", made.stack, *words)


def test_a_deployed_broker_serves_a_pool_and_keeps_what_it_holds_over_its_restart(
    cluster: Cluster, tmp_path: Path
) -> None:
    load_image(cluster)
    mark = secrets.token_hex(4)
    deployed = DeployedBroker(cluster, f"t-{mark}", f"infra-{mark}", secrets.token_hex(16))
    keys = {"admin_password": deployed.password, "kubeconfig": cluster.kubeconfig.read_text()}
    deployment = {"kind": "statefulset", "admin": ADMIN, "image": IMAGE, "storage": "1Gi", "storage_class": DISK}
    kubernetes = {"namespace": deployed.namespace}
    broker, pools = (project(tmp_path / name, name) for name in ("staging-broker", "staging"))
    broker.configure({"broker_deployment": deployment, "kubernetes": kubernetes}, keys)
    with disk(cluster, deployed.namespace):
        try:
            up(broker)
            deployed.until_ready()
            up(broker, "--refresh", "--expect-no-changes")

            with deployed.forwarded(15672) as address:
                values = {
                    "broker": {
                        "management": f"http://{address}",
                        "inside_management": f"http://{deployed.service(15672)}",
                        "amqp": f"amqp://{deployed.service(5672)}",
                        "admin": ADMIN,
                    },
                    "vhost": deployed.vhost,
                    "instance": mark,
                    "pools": [{"name": "core"}],
                    "kubernetes": {**kubernetes, "daemon": {"image": DAEMON.name, "resources": RESOURCES}},
                    "workers": {"core": SCRIPTED},
                }
                pools.configure(values, keys)
                up(pools)
            assert (broker.exposed(), pools.exposed()) == ([], [])
            client = pools.outputs()["addresses"]["core"]["client"]
            assert deployed.ask(client, "42") == "ok"
            deployed.keep(b"x")

            before = deployed.pod()["metadata"]["uid"]
            cluster.kubectl("-n", deployed.namespace, "delete", "pod", "broker-0")
            deployed.until_ready(after=before)

            # The daemon and the workers have come back to it, and it has its users, its queues and what was in them
            assert [deployed.ask(client, key) for key in ("42", "cold")] == ["ok", "ok"]
            assert deployed.kept() == [b"x"]

            # Another size of the disk is refused; done by hand as the page says, it is the stack's
            larger = {"broker_deployment": {**deployment, "storage": "2Gi"}, "kubernetes": kubernetes}
            broker.configure(larger, keys)
            refused = broker.pulumi("preview", "--stack", broker.stack)
            assert refused.code != 0
            assert "osrdyne:broker_deployment.storage is 2Gi, and the disk data-broker-0 in" in refused.text
            claim = json.dumps({"spec": {"resources": {"requests": {"storage": "2Gi"}}}})
            cluster.kubectl("-n", deployed.namespace, "patch", "pvc", "data-broker-0", "--patch", claim)
            cluster.kubectl("-n", deployed.namespace, "delete", "statefulset", "broker", "--cascade=orphan")
            up(broker, "--refresh")
            deployed.until_ready()
            deployed.keep(b"y")
            up(broker, "--refresh", "--expect-no-changes")
            until(lambda: sorted(deployed.kept()) == [b"x", b"y"], within=60, what="what was kept before the restart")
        finally:
            deployed.remove()
