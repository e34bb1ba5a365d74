"""A Docker engine for tests, and images of clean machines and of brokers for it, made without any image registry.

An engine that already answers is used and left as it was. Else `dockerd.py` keeps one for the time of the
test run.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from testbed import ROOT, package_sources
from testbed.broker import root_file_system, run_tool
from testbed.suite import only_in_test_all

#: What a machine has before anything is set up on it, beside the smallest Debian that there is.
MACHINE = ("systemd", "systemd-sysv", "dbus", "python3", "ca-certificates", "iproute2", "procps", "sudo", "make")


#: Starts a broker as RabbitMQ's own image does: as account 999, with the volume made that account's first.
ENTRYPOINT = """#!/bin/sh
set -e
chown -R 999:999 /var/lib/rabbitmq /var/log/rabbitmq
exec setpriv --reuid=999 --regid=999 --clear-groups "$@"
"""
#: What the image says of itself.
BROKER_IMAGE = (
    'ENTRYPOINT ["/entrypoint"]',
    'CMD ["rabbitmq-server"]',
    "ENV PATH=/usr/lib/rabbitmq/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/var/lib/rabbitmq LANG=C.UTF-8",
    "VOLUME /var/lib/rabbitmq",
)


def container_name(what: str) -> str:
    """A free name for a container. `make test` looks for what is named after its run when that ends."""
    return f"{os.environ.get('OSRDYNE_TEST_RUN', 'osrdyne')}-{what}-{secrets.token_hex(4)}"


#: Gives a worker that knows only WORKER_AMQP_URI what is in the file that it was given instead.
WORKER_ENTRYPOINT = """#!/bin/sh -e
WORKER_AMQP_URI="$(cat "$WORKER_AMQP_URI_FILE")"; export WORKER_AMQP_URI
exec "$@"
"""
#: Runs the file that a template names, as small as Python can be.
WORKER_IMAGE = (
    'ENTRYPOINT ["/entrypoint", "python3", "-I", "-S", "-E"]',
    'CMD ["/stub_worker.py"]',
    "ENV PATH=/usr/sbin:/usr/bin:/sbin:/bin",
)
#: What a base image of this project's own images has.
PYTHON = ("python3", "python3-venv", "ca-certificates")
#: uv trusts the authorities that the system trusts.
UV_SETTINGS = "native-tls = true\n"
#: Of no use to a worker.
WORKER_WITHOUT = ("var/cache/apt", "var/lib/apt/lists", "usr/share/doc", "usr/share/man", "usr/share/locale", "boot")


class DockerFailed(RuntimeError):
    """No engine could be had; the text says why."""


class Docker:
    """One engine: `environment` is what its clients (docker, the Python package, Molecule) need."""

    def __init__(self, host: str | None) -> None:
        self.environment = {**os.environ, **({"DOCKER_HOST": host} if host else {})}

    def __call__(self, *arguments: str) -> str:
        """Output of `docker ARGUMENTS`."""
        done = subprocess.run(["docker", *arguments], env=self.environment, check=False, capture_output=True, text=True)
        if done.returncode:
            raise DockerFailed(f"docker {' '.join(arguments[:3])}: {done.stdout[-2000:]}{done.stderr}")
        return done.stdout

    def answers(self) -> bool:
        """Whether an engine is there."""
        return (
            subprocess.run(["docker", "info"], env=self.environment, check=False, capture_output=True).returncode == 0
        )

    def machine(self, suite: str, *more: str) -> str:
        """Name of the image of a clean machine of a Debian release, with `more` packages, made where there is none."""
        root = Path(machine_root(suite, *more))
        with tempfile.TemporaryDirectory() as overlay:
            package_sources.of_apt(Path(overlay), suite)
            package_sources.of_pip(Path(overlay))
            package_sources.certificates(Path(overlay))
            return self._image(f"machine-{suite}", root, Path(overlay), ('CMD ["/lib/systemd/systemd"]',))

    def broker(self, version: str) -> str:
        """Name of an image that behaves as RabbitMQ's own of this version with management, made where there is none."""
        root = Path(root_file_system(version))
        with tempfile.TemporaryDirectory() as overlay:
            _account(root, Path(overlay))
            (Path(overlay) / "etc/rabbitmq").mkdir()
            (Path(overlay) / "etc/rabbitmq/enabled_plugins").write_text("[rabbitmq_management].\n")
            (Path(overlay) / "entrypoint").write_text(ENTRYPOINT)
            (Path(overlay) / "entrypoint").chmod(0o755)
            # Each broker makes a cookie of its own.
            return self._image(
                f"broker-{version}", root, Path(overlay), BROKER_IMAGE, "var/lib/rabbitmq/.erlang.cookie"
            )

    def worker(self) -> str:
        """Name of an image with the tests' workers that need no library, made where the engine has none."""
        root = Path(worker_root())
        with tempfile.TemporaryDirectory() as overlay:
            for file in ("tests/drivers/stub_worker.py", "lab/testbed/minimal_worker.py"):
                shutil.copy(ROOT / file, overlay)
            (Path(overlay) / "entrypoint").write_text(WORKER_ENTRYPOINT)
            (Path(overlay) / "entrypoint").chmod(0o755)
            return self._image("worker", root, Path(overlay), WORKER_IMAGE, *WORKER_WITHOUT)

    def python(self) -> str:
        """Name of a base image for the Dockerfiles, as `python:3.12-slim` is one, made where the engine has none.

        What is built on it reaches packages in the way in which this machine does.
        """
        root = Path(python_root())
        with tempfile.TemporaryDirectory() as overlay:
            (Path(overlay) / "etc/uv").mkdir(parents=True)
            (Path(overlay) / "etc/uv/uv.toml").write_text(UV_SETTINGS)
            package_sources.of_apt(Path(overlay), "trixie")
            package_sources.of_pip(Path(overlay))
            package_sources.certificates(Path(overlay))
            return self._image("python", root, Path(overlay), WORKER_IMAGE[-1:], *WORKER_WITHOUT)

    def build(self, image: str, file: str, folder: Path, more: str = "", base: str | None = None) -> None:
        """Builds the image of a Dockerfile of a folder on a base, `python()` by default.

        `more` is what the Dockerfile installs beyond what it does by itself.
        """
        given = {"BASE": base or self.python(), **({"MORE": more} if more else {})}
        options = [word for name, value in given.items() for word in ("--build-arg", f"{name}={value}")]
        # Packages come as they come to this machine, by its own network.
        self("build", "--network", "host", *options, "--tag", image, "--file", str(folder / file), str(folder))

    def _image(self, name: str, root: Path, overlay: Path, changes: tuple[str, ...], *without: str) -> str:
        image = f"osrdyne-{name}:{_digest(overlay, root.name)}"
        if self("image", "ls", "--quiet", image):
            return image
        # No file of the shared root file system is altered: in the archive, ours take their places.
        ours = [str(path.relative_to(overlay)) for path in overlay.rglob("*") if path.is_file()]
        excluded = [f"--exclude=./{path}" for path in (*ours, *without)]
        pack = _as_root("tar", "-c", *excluded, "-C", str(root), ".", "-C", str(overlay), *ours)
        with subprocess.Popen(pack, stdout=subprocess.PIPE) as tar:
            options = [word for change in changes for word in ("--change", change)]
            command = ["docker", "import", *options, "-", image]
            done = subprocess.run(
                command, env=self.environment, check=False, stdin=tar.stdout, capture_output=True, text=True
            )
        if done.returncode or tar.returncode:
            raise DockerFailed(f"the image {image} could not be made: {done.stderr}")
        return image


def machine_root(suite: str, *more: str) -> str:
    """The root file system of `Docker.machine`, made on the first call on a machine."""
    return str(json.loads(run_tool("install", *_recipe(suite, more)))["root"])


def worker_root() -> str:
    """The root file system of `Docker.worker`, made on the first call on a machine."""
    recipe = ["--suite", "trixie", "--name", "worker", "--packages", "python3"]
    return str(json.loads(run_tool("install", *recipe))["root"])


def python_root() -> str:
    """The root file system of `Docker.python`, made on the first call on a machine."""
    recipe = ["--suite", "trixie", "--name", "python", "--packages", ",".join(PYTHON)]
    return str(json.loads(run_tool("install", *recipe))["root"])


def _account(root: Path, overlay: Path) -> None:
    """Gives the broker's account the number that it has in RabbitMQ's own image."""
    (overlay / "etc").mkdir()
    for name, fields in (("passwd", 2), ("group", 1)):
        text = (root / "etc" / name).read_text()
        numbers = r":\d+" * fields
        (overlay / "etc" / name).write_text(re.sub(rf"(?m)^(rabbitmq:x){numbers}", r"\1" + ":999" * fields, text))


def _recipe(suite: str, more: tuple[str, ...]) -> list[str]:
    return ["--suite", suite, "--name", "machine", "--packages", ",".join((*MACHINE, *more))]


def _digest(overlay: Path, recipe: str) -> str:
    summed = hashlib.sha256(recipe.encode())
    for path in sorted(path for path in overlay.rglob("*") if path.is_file()):
        summed.update(str(path.relative_to(overlay)).encode() + path.read_bytes())
    return summed.hexdigest()[:12]


def _as_root(*command: str) -> list[str]:
    return [*([] if os.geteuid() == 0 else ["sudo", "-n"]), *command]


@contextlib.contextmanager
def engine() -> Iterator[Docker]:
    """An engine for as long as the context is open."""
    only_in_test_all("a Docker engine")
    if shutil.which("docker") and Docker(None).answers():
        yield Docker(None)
        return
    keeper = subprocess.Popen(
        _as_root(sys.executable, "-m", "testbed.dockerd", str(os.getgid())),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        start_new_session=True,
    )
    assert keeper.stdin
    assert keeper.stdout
    with keeper:
        found = json.loads(keeper.stdout.readline() or '{"error": "it ended without a word"}')
        if "error" in found:
            raise DockerFailed(f"no Docker engine could be started: {found['error']}")
        yield Docker(found["host"])
