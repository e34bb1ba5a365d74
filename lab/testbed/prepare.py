"""Make what engines consist of, before any test: `python -m testbed.prepare SUITE TIER...`.

`make engines` makes all of it, `make test` and `make test-all` what their tiers need. Each part is kept in the cache
outside the checkout, under a name that says what it is made from, and is made under another name first: a run that was
cut short goes on where it was, and a run on a machine that has everything ends at once.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from subprocess import CalledProcessError

import java
from testbed import apt, artemis, broker_j, browser, docker, newest_python, oslo, proton
from testbed.broker import DEMO_VERSION, SUITES, BrokerFailed, root_file_system
from testbed.browser import BrowserFailed
from testbed.compose import command as compose
from testbed.docker import DockerFailed
from testbed.go_builds import BuildFailed
from testbed.imported import broker_tiers, tiers_that_import
from testbed.kubernetes import building, images
from testbed.kubernetes.golang import GoMissing
from testbed.maven import NotFetched
from testbed.node import building as node
from testbed.pulumi import building as pulumi
from testbed.s3 import server as s3
from testbed.systemd import MORE
from tiers import NEWEST_PYTHON, names


@dataclass(frozen=True)
class Part:
    """Something that engines consist of."""

    name: str
    make: Callable[[], object]
    #: The tiers whose tests need it.
    tiers: frozenset[str]
    #: Whether tests of `make test` need it.
    small: bool = False


#: What making a part may fail with; all of them say why.
FAILURES = (
    *(apt.NotInstalled, BrokerFailed, BrowserFailed, BuildFailed, DockerFailed, GoMissing, NotFetched),
    *(OSError, CalledProcessError),
)


def installed(install: str) -> None:
    """Run `install` of a module of lab/testbed/, as root."""
    superuser = [] if os.geteuid() == 0 else ["sudo", "-n", "-E"]
    program = f"from testbed.{install} import install; install()"
    subprocess.run([*superuser, sys.executable, "-c", program], check=True)


def debootstrap() -> None:
    """Install what makes root file systems, also of brokers, where it is missing."""
    if not Path("/usr/sbin/debootstrap").exists():
        apt.install("debootstrap", "debian-archive-keyring", why="root file systems")


def openssl() -> None:
    """Have the command of docs/howto/tls.md and docs/start/compose.md."""
    if not shutil.which("openssl"):
        apt.install("openssl", why="the commands of docs/howto/tls.md and docs/start/compose.md")


def images_built() -> None:
    """Build the images of the Dockerfiles, in an engine of their own."""
    # The module asks git which files there are, which a checkout without git need not answer for other parts.
    from tests.infra.built_images import AIRPORTS, DAEMON, archives

    archives(DAEMON, AIRPORTS)


def parts() -> list[Part]:
    """All parts, those of `make test` first, then from quick to slow."""
    with_brokers = broker_tiers()
    clusters = tiers_that_import("testbed.kubernetes.cluster")
    brokers = [
        Part(f"RabbitMQ {version}", partial(root_file_system, version), with_brokers, version == DEMO_VERSION)
        for version in SUITES
    ]
    go = [
        *(Part(f"Kubernetes: {name}", partial(building.binaries, name), clusters) for name in building.RECIPES),
        Part("Pulumi", pulumi.programs, tiers_that_import("testbed.pulumi.stack")),
        Part("S3 server", s3.program, tiers_that_import("testbed.s3.server")),
        Part("Docker Compose", compose.program, tiers_that_import("testbed.compose.command")),
    ]
    newest = Part("Python of Debian 13", newest_python.prepare, frozenset({NEWEST_PYTHON}), small=True)
    dockers = tiers_that_import("testbed.docker", "testbed.own_dockerd")
    redis, postgres = tiers_that_import("testbed.redis"), tiers_that_import("testbed.postgres")
    java_brokers = tiers_that_import("testbed.artemis", "testbed.broker_j")
    return [
        Part("debootstrap", debootstrap, with_brokers | {NEWEST_PYTHON}, small=True),
        *brokers,
        *([newest] if NEWEST_PYTHON in names() else []),
        Part("OpenSSL", openssl, frozenset({"security", "release"}), small=True),
        Part("Java", java.ensure, frozenset({"pipeline"}), small=True),
        Part("browser", browser.command, tiers_that_import("testbed.browser")),
        Part("Redis", partial(installed, "redis"), redis, small=True),
        Part("PostgreSQL", partial(installed, "postgres"), postgres),
        Part("PgBouncer", partial(installed, "pgbouncer"), tiers_that_import("testbed.pgbouncer")),
        Part("qpid-proton", proton.folder, tiers_that_import("testbed.proton")),
        Part("oslo.messaging", oslo.folder, tiers_that_import("testbed.oslo")),
        Part("Java of brokers", partial(java.ensure, "Artemis"), java_brokers),
        Part("Artemis", artemis.program, java_brokers),
        Part("Qpid Broker-J", broker_j.program, java_brokers),
        Part("Node.js", node.folder, tiers_that_import("testbed.node")),
        Part("Docker engine", partial(installed, "dockerd"), dockers),
        Part("containerd", partial(installed, "kubernetes.keeper"), clusters),
        Part("image of workers", docker.worker_root, frozenset({"drivers"})),
        Part("image of pods", images.base, clusters),
        Part(
            "machine with systemd", partial(docker.machine_root, "trixie", *MORE), tiers_that_import("testbed.systemd")
        ),
        Part("machine of Debian 13", partial(docker.machine_root, "trixie"), frozenset({"roles"})),
        Part("machine of Debian 12", partial(docker.machine_root, "bookworm"), frozenset({"roles"})),
        Part("image with Python", docker.python_root, tiers_that_import("tests.infra.built_images")),
        *go,
        Part("images of the Dockerfiles", images_built, tiers_that_import("tests.infra.built_images")),
    ]


def needed(suite: str, tiers: Iterable[str]) -> list[Part]:
    """The parts that tests of these tiers stand on."""
    chosen = set(tiers)
    return [part for part in parts() if part.tiers & chosen and (suite == "test-all" or part.small)]


def every_tier() -> list[str]:
    """The tiers that need any part."""
    return sorted({tier for part in parts() for tier in part.tiers})


def main(suite: str, tiers: list[str]) -> int:
    """Make what is needed; 1 when something could not be made, which is said."""
    apt.finish()
    for part in needed(suite, tiers or every_tier()):
        started = time.monotonic()
        try:
            part.make()
        except FAILURES as error:
            print(f"engines: {part.name} could not be made: {error}", file=sys.stderr, flush=True)
            return 1
        if (seconds := time.monotonic() - started) > 1 or not tiers:
            print(f"engines: {part.name}: {seconds:.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
