"""The images of the Dockerfiles: what is in them, who they run as, and what they can do."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import steps
import versions
from testbed.docker import Docker, engine
from tests.infra.built_images import AIRPORTS, DAEMON, Recipe, archives

pytestmark = [pytest.mark.xdist_group("cluster"), pytest.mark.full, pytest.mark.timeout(1800)]

#: No right that a cluster may refuse, and nothing that can be written but what a pod mounts.
HARDENED = ("--rm", "--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--network", "none")
LOCK = Path(steps.ROOT, "requirements.lock").read_text()
PAGE = Path(steps.ROOT, "docs/howto/images.md").read_text()
#: Where each image has what is ours.
PLACES = {DAEMON: "/opt/osrdyne", AIRPORTS: "/opt/airports"}


@pytest.fixture(scope="module")
def docker() -> Iterator[Docker]:
    """An engine that has both images."""
    found = archives(DAEMON, AIRPORTS)
    with engine() as made:
        for archive in found:
            made("load", "--input", str(archive))
        yield made
        made("image", "rm", "--force", DAEMON.name, AIRPORTS.name)


def test_the_daemon_says_its_version_and_its_commands(docker: Docker) -> None:
    assert docker("run", *HARDENED, DAEMON.name, "--version").startswith("osrdyne ")
    assert "daemon" in docker("run", *HARDENED, DAEMON.name)
    help_ = docker("run", *HARDENED, "--entrypoint", "osrdyne", DAEMON.name, "daemon", "--help")
    assert "--settings" in re.sub(r"\x1b\[[\d;]*m", "", help_)


def test_the_daemon_has_its_drivers_and_reads_settings(docker: Docker, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "deployment.yaml").write_text(
        "{spec: {template: {spec: {containers: [{name: w, image: a.example/b:1}]}}}}"
    )
    (tmp_path / "settings.toml").write_text("""
        pool.name = "core"
        broker = {amqp_uri = "amqp://a:b@broker/x", management_uri = "http://a:b@broker:15672"}
        driver = {kind = "kubernetes", template_directory = "/settings", worker_secret = "s"}
        """)
    mounted = ("--volume", f"{tmp_path}:/settings:ro")
    check = docker(
        "run", *HARDENED, *mounted, DAEMON.name, "daemon", "--settings", "/settings/settings.toml", "--check"
    )
    assert "settings are right" in check
    code = "import osrdyne.drivers.kubernetes.api, osrdyne.drivers.docker.engine, osrdyne.drivers.systemd.bus"
    docker("run", *HARDENED, "--entrypoint", "python3", DAEMON.name, "-c", code)


def test_the_daemon_has_the_commands_of_jobs_on_postgresql(docker: Docker) -> None:
    assert "prepare-database" in docker("run", *HARDENED, DAEMON.name, "jobs", "--help")
    address = "OSRDYNE_JOBS_DATABASE=postgresql://a:word@127.0.0.1:1/b"
    # Nothing listens there: the driver is what says so
    with pytest.raises(RuntimeError, match=r"database postgresql://a@127\.0\.0\.1:1/b"):
        docker("run", *HARDENED, "--env", address, DAEMON.name, "jobs", "list")
    # And what `osrdyne jobs serve` needs
    docker("run", *HARDENED, "--entrypoint", "python3", DAEMON.name, "-c", "import osrdyne_jobs.http.server")


def test_the_daemon_has_the_commands_of_the_relay_and_its_driver(docker: Docker, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "access.toml").write_text('[clients.lax]\ncertificates = ["lax"]\nserve = ["core/LAX"]\n')
    mounted = ("--volume", f"{tmp_path}:/relay:ro")
    assert "right" in docker(
        "run", *HARDENED, *mounted, DAEMON.name, "relay", "check", "--access-file", "/relay/access.toml"
    )
    code = "import osrdyne_relay.http, osrdyne_relay.driver.driver"
    docker("run", *HARDENED, "--entrypoint", "python3", DAEMON.name, "-c", code)


@pytest.mark.parametrize("recipe", [DAEMON, AIRPORTS], ids=["daemon", "airports"])
def test_an_image_runs_as_a_user_without_rights_who_owns_no_file(docker: Docker, recipe: Recipe) -> None:
    configured = json.loads(docker("image", "inspect", recipe.name))[0]["Config"]
    # A number, so that a cluster that asks for runAsNonRoot can see it
    assert configured["User"] == "65532:65532"
    code = (
        "import os, sys; print(os.getuid(), os.getgid(), sys.prefix, *(p for d, _, names in os.walk('/opt')"
        " for p in (d, *(os.path.join(d, n) for n in names)) if os.access(p, os.W_OK)))"
    )
    said = docker("run", "--rm", "--network", "none", "--entrypoint", "python3", recipe.name, "-c", code).split()
    # Not even where the root file system could be written
    assert said[:2] == ["65532", "65532"]
    assert said[2].startswith("/opt/")
    assert said[3:] == []
    history = docker("image", "history", "--no-trunc", "--format", "{{.CreatedBy}}", recipe.name)
    assert not re.search(r"://[^/\s]*@|index-url", history)


@pytest.mark.parametrize("recipe", [DAEMON, AIRPORTS], ids=["daemon", "airports"])
def test_an_image_has_its_licence_and_says_what_it_consists_of(docker: Docker, recipe: Recipe) -> None:
    def read(name: str) -> str:
        return docker("run", *HARDENED, "--entrypoint", "cat", recipe.name, f"{PLACES[recipe]}/{name}")

    assert read("LICENSE") == Path(steps.ROOT, "LICENSE").read_text()
    bill = json.loads(read("sbom.cdx.json"))
    about = bill["metadata"]["component"]
    assert (bill["specVersion"], about["version"]) == ("1.6", versions.current())
    named = {component["purl"].partition("?")[0].partition("@")[0] for component in bill["components"]}
    assert {"pkg:pypi/osrdyne-worker", "pkg:deb/debian/libc6", "pkg:generic/cpython"} <= named
    code = "from importlib.metadata import distributions as d; print(*(o.name for o in d()))"
    installed = docker("run", *HARDENED, "--entrypoint", "python3", recipe.name, "-c", code).lower().split()
    assert {f"pkg:pypi/{re.sub('[-_.]+', '-', name)}" for name in installed} == {
        name for name in named if name.startswith("pkg:pypi/")
    }


@pytest.mark.parametrize("recipe", [DAEMON, AIRPORTS], ids=["daemon", "airports"])
def test_an_image_says_its_version_licence_and_base(docker: Docker, recipe: Recipe) -> None:
    labels = json.loads(docker("image", "inspect", recipe.name))[0]["Config"]["Labels"]
    said = {name.removeprefix("org.opencontainers.image."): text for name, text in labels.items()}
    assert said["version"] == versions.current()
    assert said["licenses"] == "MIT"
    assert said["base.name"] == docker.python()
    assert said["title"].startswith("osrdyne")


def test_the_daemon_has_a_health_check_and_the_worker_none(docker: Docker) -> None:
    health = json.loads(docker("image", "inspect", DAEMON.name))[0]["Config"]["Healthcheck"]["Test"]
    assert health[0] == "CMD"
    # It is a command of the image, which finds no daemon here
    with pytest.raises(RuntimeError, match="no daemon answers at"):
        docker("run", *HARDENED, "--entrypoint", health[1], DAEMON.name, *health[2:])
    assert json.loads(docker("image", "inspect", AIRPORTS.name))[0]["Config"]["Healthcheck"]["Test"] == ["NONE"]


@pytest.mark.parametrize("recipe", [DAEMON, AIRPORTS], ids=["daemon", "airports"])
def test_an_image_adds_to_its_base_what_the_page_says(docker: Docker, recipe: Recipe) -> None:
    own, base = (json.loads(docker("image", "inspect", name))[0]["Size"] for name in (recipe.name, docker.python()))
    (said,) = re.findall(
        rf"^\| `{'osrdyne' if recipe is DAEMON else 'osrdyne-airports'}` \| (\d+) MB", PAGE, re.MULTILINE
    )
    assert (own - base) / 1e6 == pytest.approx(int(said), rel=0.1)


@pytest.mark.parametrize(
    ("recipe", "ours"),
    [
        (
            DAEMON,
            {
                *("osrdyne", "osrdyne-command", "osrdyne-jobs", "osrdyne-relay"),
                *("osrdyne-client", "osrdyne-worker", "osrdyne-amqp", "osrdyne-protocol", "osrdyne-runtime"),
                *("osrdyne-calls", "osrdyne-pool"),
            },
        ),
        (
            AIRPORTS,
            {
                *("osrdyne-client", "osrdyne-worker", "osrdyne-amqp", "osrdyne-protocol", "osrdyne-runtime"),
                "osrdyne-calls",
            },
        ),
    ],
    ids=["daemon", "airports"],
)
def test_an_image_has_what_the_lock_pins_and_no_more(docker: Docker, recipe: Recipe, ours: set[str]) -> None:
    code = "from importlib.metadata import distributions as d; print(*(f'{o.name}=={o.version}' for o in d()))"
    said = docker("run", *HARDENED, "--entrypoint", "python3", recipe.name, "-c", code).split()
    found = dict(line.lower().replace("_", "-").split("==") for line in said)

    assert ours <= found.keys()
    pinned = dict(re.findall(r"^([\w.-]+)==(\S+)", LOCK, re.MULTILINE))
    assert {name: version for name, version in found.items() if name not in ours} == {
        name: pinned.get(name) for name in found if name not in ours
    }
    # Neither tools that build nor what other parts of the project need
    assert not {"pip", "uv", "setuptools", "flit-core", "pytest", "pyspark", "pulumi", "pandas"} & found.keys()


def test_a_worker_without_its_variables_says_so_and_its_data_is_prepared(docker: Docker) -> None:
    with pytest.raises(RuntimeError, match="WORKER_KEY"):
        docker("run", *HARDENED, AIRPORTS.name)
    code = "from examples.airports import cache; print(len(cache.load('BOS').flights))"
    assert int(docker("run", *HARDENED, "--entrypoint", "python3", AIRPORTS.name, "-c", code)) == 15_508
