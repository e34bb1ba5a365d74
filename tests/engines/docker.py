"""A Docker engine for tests, and images of clean machines for it, made without any image registry.

An engine that already answers is used and left as it was. Else `dockerd.py` keeps one for the time of the
test run.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.engines.broker import run_tool

#: What a machine has before anybody has set anything up on it, beside the smallest Debian that there is.
MACHINE = ("systemd", "systemd-sysv", "dbus", "python3", "ca-certificates", "iproute2", "procps", "sudo")


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
            raise DockerFailed(f"docker {' '.join(arguments[:3])}: {done.stderr}")
        return done.stdout

    def machine(self, suite: str) -> str:
        """Name of the image of a clean machine of a Debian release, made where the engine has none."""
        root = Path(json.loads(run_tool("install", *_recipe(suite)))["root"])
        with tempfile.TemporaryDirectory() as overlay:
            _package_sources(Path(overlay), suite)
            digest = _digest(Path(overlay), root.name)
            image = f"osrdyne-machine-{suite}:{digest}"
            if not self("image", "ls", "--quiet", image):
                # No file of the shared root file system is altered: in the archive, ours take their places.
                ours = [str(path.relative_to(overlay)) for path in Path(overlay).rglob("*") if path.is_file()]
                without = [f"--exclude=./{name}" for name in ours]
                pack = _as_root("tar", "-c", *without, "-C", str(root), ".", "-C", overlay, *ours)
                with subprocess.Popen(pack, stdout=subprocess.PIPE) as tar:
                    command = ["docker", "import", "--change", 'CMD ["/lib/systemd/systemd"]', "-", image]
                    done = subprocess.run(
                        command, env=self.environment, check=False, stdin=tar.stdout, capture_output=True, text=True
                    )
                if done.returncode or tar.returncode:
                    raise DockerFailed(f"the image {image} could not be made: {done.stderr}")
        return image


def _recipe(suite: str) -> list[str]:
    return ["--suite", suite, "--name", "machine", "--packages", ",".join(MACHINE)]


def _package_sources(overlay: Path, suite: str) -> None:
    """Lets apt in the image reach packages in the way in which this machine's apt does."""
    apt = overlay / "etc/apt"
    (apt / "apt.conf.d").mkdir(parents=True)
    settings = subprocess.run(["apt-config", "dump"], check=True, capture_output=True, text=True).stdout
    acquire = [line for line in settings.splitlines() if line.startswith("Acquire::")]
    (apt / "apt.conf.d/10host").write_text("\n".join(acquire) + "\n")
    targets = ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", "Label: Debian"]
    uris = subprocess.run(targets, check=True, capture_output=True, text=True).stdout.split()
    if uris:
        (apt / "sources.list").write_text(f"deb {uris[0]} {suite} main\n")
    for name in ("auth.conf.d", "etc/ssl/certs"):
        source = Path("/etc/apt", name) if name == "auth.conf.d" else Path("/", name)
        target = apt / name if name == "auth.conf.d" else overlay / name
        if name == "auth.conf.d" and source.is_dir():
            shutil.copytree(source, target)
        elif (source / "ca-certificates.crt").exists():
            target.mkdir(parents=True)
            shutil.copy(source / "ca-certificates.crt", target)


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
    if _answers(None):
        yield Docker(None)
        return
    keeper = subprocess.Popen(
        _as_root(sys.executable, "-m", "tests.engines.dockerd", str(os.getgid())),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
        start_new_session=True,
    )
    assert keeper.stdin
    assert keeper.stdout
    with keeper:
        found = json.loads(keeper.stdout.readline() or '{"error": "it ended without a word"}')
        if "error" in found:
            raise DockerFailed(f"no Docker engine could be started: {found['error']}")
        yield Docker(found["host"])


def _answers(host: str | None) -> bool:
    if not shutil.which("docker"):
        return False
    environment = {**os.environ, **({"DOCKER_HOST": host} if host else {})}
    return subprocess.run(["docker", "info"], env=environment, check=False, capture_output=True).returncode == 0
