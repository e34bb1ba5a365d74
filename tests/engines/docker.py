"""A Docker engine for tests, and images of clean machines for it, made without any image registry.

An engine that already answers is used and left as it was. Else docker.io is installed by apt where it is missing,
and dockerd runs as a plain process with a data root, socket and bridge rules that are gone when the test run ends.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.engines.broker import run_tool
from tests.engines.waiting import until

#: What a machine has before anybody has set anything up on it, beside the smallest Debian that there is.
MACHINE = ("systemd", "systemd-sysv", "dbus", "python3", "ca-certificates", "iproute2", "procps", "sudo")
#: With these, systemd reaches `running` as process 1 of a container, without --privileged.
SYSTEMD_FLAGS = {
    "capabilities": ["SYS_ADMIN", "NET_ADMIN"],
    "security_opts": ["seccomp=unconfined"],
    "cgroupns_mode": "host",
    "tmpfs": ["/run", "/run/lock", "/tmp"],
    "volumes": ["/sys/fs/cgroup:/sys/fs/cgroup:rw"],
}


class DockerFailed(RuntimeError):
    """No engine could be had; the text says why."""


class Docker:
    """One engine: `environment` is what its clients (docker, the Python package, Molecule) need."""

    def __init__(self, host: str | None) -> None:
        self.environment = {**os.environ, **({"DOCKER_HOST": host} if host else {})}

    def __call__(self, *arguments: str) -> str:
        """Output of `docker ARGUMENTS`."""
        done = subprocess.run(
            ["docker", *arguments], env=self.environment, check=False, capture_output=True, text=True
        )
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
    if not shutil.which("dockerd", path=f"{os.environ.get('PATH', '')}:/usr/sbin"):
        _install()
    with _own_engine() as host:
        yield Docker(host)


def _answers(host: str | None) -> bool:
    if not shutil.which("docker"):
        return False
    environment = {**os.environ, **({"DOCKER_HOST": host} if host else {})}
    return subprocess.run(["docker", "info"], env=environment, check=False, capture_output=True).returncode == 0


def _install() -> None:
    apt = ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-q", "-o", "DPkg::Lock::Timeout=300"]
    for step in (["update"], ["install", "-y", "--no-install-recommends", "docker.io", "iptables"]):
        done = subprocess.run(_as_root(*apt, *step), check=False, capture_output=True, text=True)
        if done.returncode and step[0] == "install":
            raise DockerFailed(f"docker.io could not be installed: {done.stderr[-800:]}")


@contextlib.contextmanager
def _own_engine() -> Iterator[str]:
    """dockerd as a child process, ended with all that it changed of the machine's network."""
    folder = Path(tempfile.mkdtemp(prefix="osrdyne-docker-"))
    before = _network()
    host = f"unix://{folder}/docker.sock"
    paths = [f"--data-root={folder}/data", f"--exec-root={folder}/run", f"--pidfile={folder}/pid", f"--host={host}"]
    command = _as_root("dockerd", *paths, f"--group={os.getgid()}")
    with (folder / "log").open("w") as log:
        daemon = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        until(lambda: daemon.poll() is not None or _answers(host), within=60, every=0.2)
        if daemon.poll() is not None:
            raise DockerFailed(f"dockerd did not start:\n{(folder / 'log').read_text()[-1500:]}")
        yield host
    finally:
        with _no_interruption():
            subprocess.run(_as_root("kill", str(_pid(folder, daemon))), check=False)
            with contextlib.suppress(subprocess.TimeoutExpired):
                daemon.wait(timeout=60)
            _restore(before)
            subprocess.run(_as_root("rm", "-rf", str(folder)), check=False)


def _pid(folder: Path, daemon: subprocess.Popen[bytes]) -> int:
    """dockerd's own process id: `daemon` is sudo's where this is not root."""
    try:
        return int((folder / "pid").read_text())
    except (OSError, ValueError):
        return daemon.pid


@contextlib.contextmanager
def _no_interruption() -> Iterator[None]:
    """Ctrl-C waits until everything is put back."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    kept = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, kept)


def _network() -> tuple[str, str]:
    """What dockerd changes: the packet filter, and whether this machine forwards."""
    rules = subprocess.run(_as_root("iptables-save"), check=True, capture_output=True, text=True).stdout
    return rules, Path("/proc/sys/net/ipv4/ip_forward").read_text().strip()


def _restore(before: tuple[str, str]) -> None:
    rules, forward = before
    subprocess.run(_as_root("ip", "link", "delete", "docker0"), check=False, capture_output=True)
    for table in ("filter", "nat"):
        if f"*{table}" not in rules:  # it was empty
            chains = f"*{table}\n" + "".join(f":{chain} ACCEPT [0:0]\n" for chain in CHAINS[table]) + "COMMIT\n"
            rules += chains
    subprocess.run(_as_root("iptables-restore"), check=False, input=rules, text=True, capture_output=True)
    subprocess.run(_as_root("sysctl", "-q", "-w", f"net.ipv4.ip_forward={forward}"), check=False)


#: Chains that each table of the packet filter has from the start.
CHAINS: dict[str, Sequence[str]] = {
    "filter": ("INPUT", "FORWARD", "OUTPUT"),
    "nat": ("PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"),
}
