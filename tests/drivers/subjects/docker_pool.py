"""A pool on a real broker whose workers are containers: what the whole daemon needs beside the Docker engine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pika

from testbed.pool import Pool
from tests.drivers.subjects.docker import DockerSubject
from tests.drivers.subjects.engine_pool import ROOT, EnginePool

#: Where this interpreter's packages are; the workers need pika of them, which is plain Python.
PACKAGES = Path(pika.__file__).parents[1]


class ContainerPool(EnginePool):
    """A pool of workers with our library. `close` ends the daemons; the containers are the subject's to remove."""

    def __init__(self, dockerd: DockerSubject, pool: Pool, directory: Path) -> None:
        super().__init__(pool, directory)
        self.dockerd = dockerd
        self._template = directory / "pool.json"
        dockerd.uri_file.write_text(pool.uri(pool.users.worker))
        self.declare()

    def declare(self, **template: Any) -> None:
        """Writes the template; a daemon reads it when it starts."""
        read_only = [
            {"Type": "bind", "Source": str(path), "Target": str(path), "ReadOnly": True} for path in (ROOT, PACKAGES)
        ]
        ours = (ROOT / "packages" / name for name in ("protocol", "runtime", "calls", "amqp", "client", "worker"))
        path = ":".join(map(str, (ROOT / "lab", *ours, PACKAGES)))
        declared = {
            "Image": self.dockerd.image,
            # Without the image's own entrypoint: our library reads WORKER_AMQP_URI_FILE itself.
            "Entrypoint": ["python3", "-B", "-m", "testbed.library_worker"],
            "Env": [f"PYTHONPATH={path}"],
            "HostConfig": {"NetworkMode": "host", "Mounts": read_only},
            **template,
        }
        self._template.write_text(json.dumps(declared))

    def driver(self, directory: Path) -> dict[str, Any]:
        return {
            "kind": "docker",
            "template_file": str(self._template),
            "worker_amqp_uri_file": str(self.dockerd.uri_file),
            **({"host": self.dockerd.host} if self.dockerd.host else {}),
        }
