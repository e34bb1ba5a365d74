"""A Kubernetes cluster of one node for tests: `with Cluster() as cluster:` starts it and leaves nothing behind.

The cluster ends with the process that started it, also when that is killed. Pods find `WORKER_IMAGE`
(Debian with Python, and in /worker this project's small workers) and what `load_image` adds; nothing can be pulled.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from testbed import ROOT
from testbed.kubernetes import building, certificates, images
from testbed.kubernetes.components import PAUSE_IMAGE
from testbed.kubernetes.layout import Layout
from testbed.started import StartedEngine
from testbed.waiting import until

#: An image whose pods answer requests.
WORKER_IMAGE = "osrdyne.invalid/worker:test"
WORKERS = ("lab/testbed/minimal_worker.py", "tests/drivers/stub_worker.py")
WORKER_COMMAND = ("python3", "-I", "-S", "-E", "/worker/minimal_worker.py")
#: What every cluster is made of; add-ons are built when one is asked for.
MODULES = ("kubernetes", "etcd", "coredns")


class ClusterFailed(RuntimeError):
    """The cluster did not do what it should; the text says why."""


class Cluster(StartedEngine):
    """One cluster. Several at once, of one process or of many, do not meet."""

    def __init__(self, directory: Path | None = None) -> None:
        """With a directory, it is the cluster there: one that `up` (__main__.py) has started, or is about to."""
        self.directory = directory or Path(tempfile.mkdtemp(prefix="osrdyne-kubernetes-"))
        #: The administrator's.
        self.kubeconfig = self.directory / "kubeconfig"
        self._keeper: subprocess.Popen[bytes] | None = None
        self._forwards: dict[int, subprocess.Popen[bytes]] = {}
        self._loaded: set[str] = set()

    @property
    def layout(self) -> Layout:
        return Layout.read(self.directory)

    @property
    def gateway(self) -> str:
        """Address of this machine for pods; of its ports, those of `forward`, and what listens there itself."""
        return self.layout.gateway

    @property
    def address(self) -> str:
        """Address of the node: ports of node and host network are reached there, from this machine and from pods."""
        return self.layout.address

    def start(self, *, stop: int | None = None) -> None:
        """Builds what is missing, starts the cluster, and returns when pods can be made.

        It runs until `close`, or until this process ends; with `stop`, until something is written to that file.
        Raises ClusterFailed, and what building and packing raise.
        """
        folders = {name: str(building.binaries(name)) for name in MODULES}
        base = images.base()
        self.directory.mkdir(exist_ok=True)
        # Passed through by the node's own users.
        self.directory.chmod(0o711)
        (self.directory / "asked.json").write_text(json.dumps(folders))
        superuser = [] if os.geteuid() == 0 else ["sudo", "-n"]
        with (self.directory / "keeper.log").open("wb") as log:
            self._keeper = subprocess.Popen(
                [*superuser, sys.executable, "-m", "testbed.kubernetes.keeper", str(self.directory)],
                stdin=subprocess.PIPE if stop is None else stop,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=ROOT,
                start_new_session=True,
            )
        assert self._keeper.stdout
        output = self._keeper.stdout
        until(lambda: _readable(output) or self._engine_answers(), within=600, every=0.1, what="the container engine")
        if not _readable(output):
            self._load_first_images(base)
        line = output.readline()
        found = json.loads(line or json.dumps({"error": (self.directory / "keeper.log").read_text()}))
        if "error" in found:
            raise ClusterFailed(f"no Kubernetes cluster could be started: {found['error']}")

    def close(self) -> None:
        """Ends everything, and returns when nothing is left."""
        for process in [*self._forwards.values(), *([self._keeper] if self._keeper else [])]:
            for stream in (process.stdin, process.stdout):
                if stream:
                    stream.close()
            process.wait(timeout=120)
        self._forwards, self._keeper = {}, None
        shutil.rmtree(self.directory, ignore_errors=True)

    def kubectl(self, *arguments: str, stdin: str | None = None, kubeconfig: Path | None = None) -> str:
        """Output of `kubectl ARGUMENTS`, as the administrator or the user of a kubeconfig. Raises ClusterFailed."""
        done = subprocess.run(
            self._kubectl(kubeconfig or self.kubeconfig, *arguments),
            check=False,
            capture_output=True,
            text=True,
            input=stdin or "",
            env=_direct(),
        )
        if done.returncode:
            raise ClusterFailed(f"kubectl {' '.join(arguments)}: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout

    def running_kubectl(self, *arguments: str) -> subprocess.Popen[str]:
        """`kubectl ARGUMENTS` as a process whose output is read."""
        command = self._kubectl(self.kubeconfig, *arguments)
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=_direct())

    def _kubectl(self, kubeconfig: Path, *arguments: str) -> list[str]:
        options = [f"--cache-dir={self.directory}/kubectl", f"--kubeconfig={kubeconfig}"]
        return [str(self.layout.kubernetes / "kubectl"), *options, *arguments]

    def apply(self, *objects: Mapping[str, Any]) -> None:
        """Makes these objects, or changes them."""
        listed = {"apiVersion": "v1", "kind": "List", "items": objects}
        self.kubectl("apply", "-f", "-", stdin=json.dumps(listed))

    def kubeconfig_of(self, namespace: str, service_account: str) -> Path:
        """A kubeconfig with a fresh token of a ServiceAccount that is there already."""
        token = self.kubectl("-n", namespace, "create", "token", service_account).strip()
        layout = self.layout
        text = certificates.kubeconfig(layout.server, layout.certificates / "ca.pem", token, namespace)
        path = self.directory / f"{namespace}.{service_account}.kubeconfig"
        path.touch(mode=0o600)
        path.write_text(text)
        return path

    def load_image(self, name: str, files: Mapping[str, bytes | Path], command: Sequence[str] = WORKER_COMMAND) -> None:
        """Makes an image of Debian, Python and these files (by absolute path) known to the node.

        Pods must not use the pull policy `Always`.
        """
        self._load(name, [images.base(), images.layer(files)], command)

    def load_root(self, name: str, root: Path, files: Mapping[str, bytes | Path], command: Sequence[str]) -> None:
        """Makes an image of a root file system and these files known to the node."""
        self._load(name, [images.packed(root), images.layer(files)], command)

    def load_archive(self, archive: Path) -> None:
        """Makes the images of an archive, as `docker save` writes it, known to the node."""
        self._ctr("images", "import", "--snapshotter", "overlayfs", str(archive))

    def forward(self, port: int) -> None:
        """Lets pods reach 127.0.0.1:`port` of this machine at `gateway`:`port`, until `close`."""
        if port in self._forwards:
            return
        process = subprocess.Popen(
            [sys.executable, "-m", "testbed.kubernetes.forward", self.gateway, str(port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            start_new_session=True,
        )
        self._forwards[port] = process
        assert process.stdout
        if not process.stdout.readline():
            raise ClusterFailed(f"port {port} could not be opened to pods; does something listen at {self.gateway}?")

    def start_metrics_server(self) -> None:
        """Starts metrics-server, unless it runs, and returns when its API is served. About 3 s."""
        self._ask(do="metrics-server", programs=str(building.binaries("metrics-server")))

    def start_keda(self) -> None:
        """Starts KEDA, unless it runs, and returns when ScaledObjects are acted upon. About 10 s."""
        self._ask(do="keda", programs=str(building.binaries("keda")))

    def signal(self, part: str, number: int) -> None:
        """Sends a signal to a part of the cluster, named as its log is: SIGSTOP makes it slow, SIGKILL away."""
        self._ask(do="signal", part=part, number=str(int(number)))

    def start_again(self, part: str) -> None:
        """Starts a part that was ended by a signal, and does not wait for it."""
        self._ask(do="start again", part=part)

    def log(self, part: str) -> str:
        """What a part of the cluster said: `kubelet`, `api-server`, `keda-operator` and so on."""
        return (self.layout.log / part).read_text(errors="replace")

    def _ask(self, **request: str) -> None:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(self.layout.requests))
            with connection.makefile("rw") as stream:
                stream.write(json.dumps(request) + "\n")
                stream.flush()
                answer = json.loads(stream.readline())
        if "error" in answer:
            raise ClusterFailed(f"{' '.join(request.values())}: {answer['error']}")

    def _load_first_images(self, base: images.Blob) -> None:
        pause = images.layer({"/pause": self.layout.kubernetes / "pause"})
        self._load(PAUSE_IMAGE, [pause], ["/pause"])
        workers = images.layer({f"/worker/{Path(path).name}": ROOT / path for path in WORKERS})
        self._load(WORKER_IMAGE, [base, workers], WORKER_COMMAND)

    def _load(self, name: str, layers: Sequence[images.Blob], command: Sequence[str]) -> None:
        if "." not in name.partition("/")[0]:
            # A short name would be completed with the address of a registry.
            raise ClusterFailed(f"{name!r} names no registry; call it osrdyne.invalid/{name}")
        with tempfile.NamedTemporaryFile(dir=self.directory, suffix=".tar") as archive:
            images.write_archive(Path(archive.name), name, layers, command, self._loaded)
            self._ctr("images", "import", "--snapshotter", "overlayfs", archive.name)
        self._loaded |= {layer.digest for layer in layers}

    def _ctr(self, *arguments: str) -> str:
        command = ["ctr", "--address", str(self.layout.containerd), "--namespace", "k8s.io"]
        done = subprocess.run([*command, *arguments], check=False, capture_output=True, text=True)
        if done.returncode:
            raise ClusterFailed(f"ctr {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    def _engine_answers(self) -> bool:
        try:
            self._ctr("version")
        except (ClusterFailed, FileNotFoundError, PermissionError):
            return False
        return True


def _readable(stream: Any) -> bool:
    return bool(select.select([stream], [], [], 0)[0])


def _direct() -> dict[str, str]:
    """An environment in which no web proxy is asked: none is for these addresses."""
    return {**os.environ, "NO_PROXY": "*", "no_proxy": "*"}
