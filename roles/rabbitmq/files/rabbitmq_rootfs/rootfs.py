"""Makes, once, the Debian root file system that holds a RabbitMQ: with debootstrap, in a cache, for all
instances.
"""

from __future__ import annotations

import dataclasses
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from .failure import Failure

#: What a broker needs of Debian.
PACKAGES = "rabbitmq-server,ca-certificates"
#: Bytes free that the building of one root file system needs (it ends at about 270 MB).
SPACE_NEEDED = 900_000_000
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"


def default_cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "osrdyne" / "rootfs"


@dataclasses.dataclass(frozen=True)
class Recipe:
    """What a root file system is made from."""

    suite: str
    #: Names of packages, beside the smallest Debian that there is.
    packages: tuple[str, ...]
    #: First word of the directory's name.
    name: str = "rabbitmq"

    def path(self, cache: Path) -> Path:
        """Names the directory after all it is made from: a change of recipe never finds an old one."""
        recipe = " ".join((self.suite, os.uname().machine, *self.packages))
        return cache / f"{self.name}-{self.suite}-{hashlib.sha256(recipe.encode()).hexdigest()[:12]}"


def version(root: Path) -> str:
    """Version of the RabbitMQ in a root file system, "" where there is none."""
    found = sorted(root.glob("usr/lib/rabbitmq/lib/rabbitmq_server-*"))
    return found[-1].name.partition("-")[2] if found else ""


def install(cache: Path, recipe: Recipe, expect: str) -> bool:
    """Builds the root file system unless a whole one is there; says whether it did.

    It is built under another name and renamed, so that a build cut short is never taken for a whole one; a
    lock makes a second caller wait for the first.
    """
    root = recipe.path(cache)
    cache.mkdir(parents=True, exist_ok=True)
    built = False
    with (cache / f"{root.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not root.exists():
            part = cache / f"{root.name}.part"
            discard(part)
            debootstrap(recipe, part)
            part.rename(root)
            built = True
    found = version(root)
    if not found.startswith(expect):
        raise Failure(f"{recipe.suite} carries RabbitMQ {found}, not {expect} (remove {root} to build it again)")
    return built


def discard(part: Path) -> None:
    """Remove what a build that was cut short has left, with what debootstrap has mounted in it."""
    if not part.exists():
        return
    points = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    for point in reversed([point for point in points if Path(point).is_relative_to(part.resolve())]):
        done = subprocess.run(["umount", point], check=False, capture_output=True, text=True)
        if done.returncode:
            raise Failure(f"{point} is left of a build that was cut short: {done.stderr.strip()}; umount it by hand")
    shutil.rmtree(part)


def debootstrap(recipe: Recipe, target: Path) -> None:
    suite = recipe.suite
    free = shutil.disk_usage(target.parent).free
    if free < SPACE_NEEDED:
        needed = SPACE_NEEDED // 10**6
        raise Failure(f"{target.parent} has {free // 10**6} MB free; a root file system needs {needed} MB")
    ensure_debootstrap()
    environment = {**os.environ, "PATH": f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin", "LC_ALL": "C"}
    proxy = output("apt-config", "shell", "P", "Acquire::http::Proxy").partition("=")[2].strip("'\n")
    if proxy and proxy != "DIRECT":
        environment.setdefault("http_proxy", proxy)
    command = ["debootstrap", "--variant=minbase", f"--include={','.join(recipe.packages)}", f"--keyring={KEYRING}"]
    command += [suite, str(target), debian_mirror()]
    if not Path("/usr/share/debootstrap/scripts", suite).exists():
        command.append("sid")  # a release younger than this machine's debootstrap; all of them are made alike
    print(f"making a {suite} root file system in {target} (about a minute)", file=sys.stderr, flush=True)
    done = subprocess.run(
        command, check=False, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode:
        raise Failure(f"debootstrap of {suite} failed, its last words:\n" + "\n".join(done.stdout.splitlines()[-8:]))
    for leftover in [*target.glob("var/cache/apt/archives/*.deb"), *target.glob("var/lib/apt/lists/*_*")]:
        leftover.unlink()
    (target / "etc/hosts").touch()  # a place to mount over: not every release has one


def ensure_debootstrap() -> None:
    """Installs debootstrap and Debian's keys (Ubuntu's debootstrap comes without them) where they are
    missing.
    """
    if Path("/usr/sbin/debootstrap").exists() and Path(KEYRING).exists():
        return
    if not shutil.which("apt-get"):
        raise Failure("debootstrap is missing and there is no apt-get to install it with; install debootstrap first")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    lock = "DPkg::Lock::Timeout=300"
    wanted = ["debootstrap", "debian-archive-keyring"]
    print(f"apt installs {' and '.join(wanted)}", file=sys.stderr, flush=True)
    # An update that fails may still leave lists from which the packages can be installed.
    failed = ""
    for step in (["update"], ["install", "-y", "--no-install-recommends", *wanted]):
        done = subprocess.run(
            ["apt-get", "-q", "-o", lock, *step],
            check=False,
            env=environment,
            capture_output=True,
            text=True,
        )
        failed += done.stderr[-800:] if done.returncode else ""
    if done.returncode:
        raise Failure(f"apt-get could not install {' and '.join(wanted)}:\n{failed}")


def debian_mirror() -> str:
    """The mirror that this machine's apt takes Debian from; "" leaves the choice to debootstrap."""
    listed = output("apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", "Label: Debian")
    return next((line for line in listed.splitlines() if line.startswith(("http", "file:"))), "")


def output(*command: str) -> str:
    try:
        return subprocess.run(command, check=False, capture_output=True, text=True).stdout
    except FileNotFoundError:
        return ""
