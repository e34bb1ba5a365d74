"""docs/start/compose.md: its commands lead from a Docker engine to an answer, and remove all again."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import steps
import versions
from testbed import docker
from testbed.compose import command
from tests.broker.test_readme import blocks
from tests.infra.built_images import DAEMON, archives

pytestmark = [pytest.mark.full, pytest.mark.timeout(1200), pytest.mark.xdist_group("compose")]

PAGE = Path(steps.ROOT, "docs/start/compose.md").read_text()
FOLDER = "examples/compose"
IMAGE = f"osrdyne:{versions.current()}"


@dataclass
class Reader:
    """Who types the commands of the page, in a shell with a folder and variables."""

    folder: Path
    variables: dict[str, str]
    engine: docker.Docker

    def run(self, commands: str) -> str:
        done = subprocess.run(
            ["bash", "-e", "-c", f"{commands}\npwd >{self.folder}/place"],
            cwd=self.place,
            env=self.variables,
            # As in a terminal, which this is not.
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{commands}: {done.stdout}{done.stderr}{self.logs()}"
        return done.stdout

    @property
    def place(self) -> Path:
        noted = self.folder / "place"
        return Path(noted.read_text().strip()) if noted.exists() else self.folder

    def logs(self) -> str:
        command_line = ["docker", "compose", "logs", "--no-color", "--tail", "30"]
        return subprocess.run(
            command_line, cwd=self.place, env=self.variables, capture_output=True, text=True, check=False
        ).stdout

    def container(self, service: str) -> dict[str, object]:
        (number,) = self.run(f"docker compose ps --all --quiet {service}").split()
        (described,) = json.loads(self.engine("container", "inspect", number))
        return dict(described)


@pytest.fixture(scope="module")
def engine() -> Iterator[docker.Docker]:
    """An engine that has the image, which it can get from no registry."""
    (archive,) = archives(DAEMON)
    with docker.engine() as engine:
        engine("load", "--input", str(archive))
        engine("tag", DAEMON.name, IMAGE)
        yield engine
        engine("image", "rm", "--force", IMAGE, DAEMON.name)


@pytest.fixture
def reader(engine: docker.Docker, tmp_path: Path) -> Iterator[Reader]:
    """A reader with a checkout."""
    variables = command.environment(engine, tmp_path / "docker") | {"RABBITMQ_IMAGE": engine.broker("4.3")}
    shutil.copytree(steps.ROOT / FOLDER, tmp_path / FOLDER)
    yield Reader(tmp_path, variables, engine)
    down = ["docker", "compose", "down", "--volumes", "--timeout", "1"]
    subprocess.run(down, cwd=tmp_path / FOLDER, env=variables, check=False, capture_output=True)


def test_the_commands_of_the_page_lead_to_an_answer_and_remove_the_pool_again(reader: Reader) -> None:
    first, look, end = blocks(PAGE, "sh")
    assert len(first.splitlines()) <= 4

    said = reader.run(first)

    (shown,) = blocks(PAGE, "text")
    assert said == shown.rstrip("\n")
    assert re.search(r"^LAX\s+ready", reader.run(look), re.MULTILINE)
    daemon = reader.container("daemon")
    look_at_rights(reader, daemon)
    # Who types all of them once more has the same password and the same daemon
    password = (reader.place / ".env").read_text()
    assert reader.run(f"cd {reader.folder}\n{first}") == said
    assert (reader.place / ".env").read_text() == password
    assert reader.container("daemon")["Id"] == daemon["Id"]
    assert "nothing to do: the broker has the pool as declared" in reader.logs()
    # The worker that was changed answers, once the daemon has begun again
    worker = reader.place / "worker.py"
    worker.write_text(worker.read_text().replace("answers", "replies to"))
    reader.run("docker compose restart daemon\ndocker compose up --detach --wait")
    assert reader.run("docker compose exec daemon osrdyne call LAX again") == "LAX replies to again"
    # What ends it keeps the data, or removes that, too
    keep, remove = end.splitlines()
    reader.run(keep)
    assert len(reader.engine("volume", "ls", "--quiet", "--filter", "name=osrdyne_").split()) == 2
    reader.run("docker compose up --detach --wait")
    assert reader.run("docker compose exec daemon osrdyne call LAX back") == "LAX replies to back"
    reader.run(remove)
    assert reader.engine("ps", "--all", "--quiet", "--filter", "name=osrdyne-").split() == []
    assert reader.engine("volume", "ls", "--quiet", "--filter", "name=osrdyne_").split() == []


def look_at_rights(reader: Reader, daemon: dict[str, object]) -> None:
    """The daemon has no right that it does not need; its users' passwords are its own."""
    assert daemon["State"]["Health"]["Status"] == "healthy"  # type: ignore[index]
    for service in ("broker", "daemon"):
        host = json.loads(json.dumps(reader.container(service)["HostConfig"]))
        assert host["PortBindings"] == {}
        assert host["RestartPolicy"]["Name"] == "unless-stopped"
    assert host["ReadonlyRootfs"] is True
    assert host["CapDrop"] == ["ALL"]
    assert "no-new-privileges:true" in host["SecurityOpt"]
    status = reader.run("docker compose exec daemon cat /proc/1/status")
    assert re.search(r"^Uid:\s+65532\s", status, re.MULTILINE)
    assert re.search(r"^CapEff:\s+0+$", status, re.MULTILINE)
    with pytest.raises(AssertionError, match="Read-only file system"):
        reader.run("docker compose exec daemon touch /opt/osrdyne/a")
    modes = reader.run("docker compose exec daemon sh -c 'stat --format %a:%u /var/lib/osrdyne/users/*'").split()
    assert {*modes} == {"600:65532"}
    # The password of the broker's administrator is not the daemon's
    assert "admin" not in reader.run("docker compose exec daemon env")
    assert oct((reader.place / ".env").stat().st_mode & 0o777) == "0o600"


def test_without_a_password_compose_says_what_to_do(reader: Reader) -> None:
    with pytest.raises(AssertionError, match=r"write it into \.env, as docs/start/compose\.md says"):
        reader.run(f"cd {FOLDER}; docker compose up --detach")


def test_a_password_that_the_broker_does_not_have_is_said_with_what_to_do(reader: Reader) -> None:
    first, _, _ = blocks(PAGE, "sh")
    reader.run(first)
    (reader.place / ".env").write_text("BROKER_PASSWORD=another\n")

    with pytest.raises(AssertionError, match=r'service "topology" didn\'t complete successfully: exit 2'):
        reader.run("docker compose up --detach --wait")

    said = reader.run("docker compose logs --no-log-prefix topology")
    assert "user 'admin' is refused; check its name and password" in said
