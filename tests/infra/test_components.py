"""Components in programs that are not ours, and stacks that an earlier program made, on the real engine."""

from __future__ import annotations

import io
import re
import subprocess
import tarfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pulumi
import pytest

import steps
from osrdyne_infra import Broker, Pool, broker_settings, pool_settings, preflight
from osrdyne_infra.broker import live
from osrdyne_infra.broker.live import Live
from osrdyne_infra.components.broker import look_late
from osrdyne_infra.configuration import StackSettings
from osrdyne_infra.errors import ConfigurationError, InfraError
from osrdyne_pool.topology import Queue, Topology
from testbed.pulumi.stack import CommandResult, Project
from tests.infra import declaring
from tests.infra.conftest import Stack
from tests.infra.test_refusals import ORPHANS

#: The last program that was not made of components.
FORMER = "f5bc9f31"
WORD = "hidden-word"
PAGE = Path(steps.ROOT, "docs/howto/pulumi-components.md")


def programs() -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)


@dataclass
class OwnProject(Project):
    """A project that is not ours: a program and its stack's file in a folder of its own."""

    #: More than what each project has.
    variables: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        (self.directory / "Pulumi.yaml").write_text("name: trains\nruntime: python\n")
        for name in ("state", "home"):
            (self.directory / name).mkdir()

    def environment(self) -> dict[str, str]:
        return {**super().environment(), **self.variables}

    def write(self, program: str, replaced: dict[str, str]) -> None:
        for old, new in replaced.items():
            assert old in program
            program = program.replace(old, new)
        assert len(program.splitlines()) <= 20
        (self.directory / "__main__.py").write_text(program)

    def up(self, *words: str) -> CommandResult:
        return self.pulumi("up", "--yes", "--skip-preview", "--stack", self.stack, *words)


def own(stack: Stack, directory: Path, program: str) -> OwnProject:
    """A project with a program of the page, on the broker, in the vhost and with the instance of a stack."""
    directory.mkdir()
    project = OwnProject(directory, passphrase="phrase")
    replaced = {
        '"admin": "admin"': f'"admin": "{stack.broker.admin}"',
        "http://127.0.0.1:15672": stack.broker.management_url,
        "amqp://127.0.0.1:5672": f"amqp://127.0.0.1:{stack.broker.amqp_port}",
        'vhost="trains"': f'vhost="{stack.vhost}"',
        '"trial"': f'"{stack.instance}"',
    }
    project.write(program, replaced)
    project.must("stack", "init", project.stack)
    give(project, stack.broker.admin_password)
    return project


def give(project: Project, password: str) -> None:
    project.must("config", "set", "--stack", project.stack, "--secret", "admin_password", stdin=password)


def made_by(stack: Stack, commit: str) -> None:
    """Give a stack the program of a commit, which goes on standing on the packages of today."""
    archive = ["git", "archive", commit, "infra/__main__.py", "infra/osrdyne_infra"]
    done = subprocess.run(archive, cwd=steps.ROOT, check=False, capture_output=True)
    if done.returncode:
        pytest.skip(f"this clone has no commit {commit}")
    for part in ("__main__.py", "osrdyne_infra"):
        (stack.project.directory / "infra" / part).unlink()
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as files:
        files.extractall(stack.project.directory, filter="data")


def made_by_ours(stack: Stack) -> None:
    for part in ("__main__.py", "osrdyne_infra"):
        place = stack.project.directory / "infra" / part
        place.rename(place.with_name(f"former-{part}"))
        place.symlink_to(Path(steps.ROOT, "infra", part))


def test_a_stack_that_the_former_program_made_changes_nothing_and_stays_guarded(newest: Stack) -> None:
    newest.values["pools"] = [{"name": "core"}, {"name": "other"}]
    newest.configure()
    made_by(newest, FORMER)
    newest.must_up()
    newest.publish(ORPHANS)

    made_by_ours(newest)
    newest.must_up("--expect-no-changes")
    done = newest.destroy()

    assert done.code != 0
    assert f"{ORPHANS} holds 1 message" in done.text
    assert newest.broker.management.queue(newest.vhost, ORPHANS)


def test_a_program_of_the_page_declares_a_pool_that_is_guarded(newest: Stack, tmp_path: Path) -> None:
    project = own(newest, tmp_path / "own", programs()[0])

    # A wrong password is said before anything is made
    give(project, "not-the-password")
    refused = project.up()
    assert refused.code != 0
    assert f"does not let user {newest.broker.admin} in: name or password is wrong" in refused.text
    assert "Traceback" not in refused.text
    assert newest.vhost not in newest.vhosts()

    # And the right one makes a pool, once
    give(project, newest.broker.admin_password)
    assert project.up().code == 0
    assert project.up("--expect-no-changes").code == 0
    assert len(newest.users()) == 6
    addresses = project.outputs()["addresses"]
    assert {"client", "worker", "daemon", "daemon-management"} <= set(addresses)
    assert newest.broker.admin_password not in project.must("stack", "export", "--stack", project.stack).out

    # Which is not deleted with its messages, also where the program is gone
    newest.publish(ORPHANS)
    (project.directory / "__main__.py").unlink()
    destroy = ("destroy", "--yes", "--skip-preview", "--stack", project.stack)
    done = project.pulumi(*destroy)
    assert done.code != 0
    assert f"{ORPHANS} holds 1 message" in done.text
    newest.purge(ORPHANS)
    assert project.pulumi(*destroy).code == 0
    assert newest.vhost not in newest.vhosts()


def test_a_preview_asks_nothing_while_the_password_is_made_by_the_same_program(newest: Stack, tmp_path: Path) -> None:
    made = programs()[0].replace(
        'pulumi.Config().require_secret("admin_password")', 'Password("made", "1", pulumi.ResourceOptions()).password'
    )
    program = made.replace("import pulumi\n", "import pulumi\nfrom osrdyne_infra.password import Password\n", 1)
    project = own(newest, tmp_path / "own", program)

    project.must("preview", "--stack", project.stack)

    # What is made is not the administrator's password: the next step finds that, and makes nothing.
    done = project.up()
    assert done.code != 0
    assert f"does not let user {newest.broker.admin} in: name or password is wrong" in done.text
    assert newest.vhost not in newest.vhosts()
    assert newest.users() == set()


def given(vhost: str, password: pulumi.Input[str] = WORD) -> StackSettings:
    return pool_settings(
        broker={"management": "http://127.0.0.1:1", "amqp": "amqp://b", "admin": "root"},
        admin_password=password,
        vhost=vhost,
        instance=vhost,
        pools=[{"name": "core"}],
    )


def all_of(declare: Callable[[], None]) -> set[tuple[str, str]]:
    return set(declaring.declared(declare).everything)


@pytest.mark.fast
def test_two_pools_of_one_name_are_in_one_program_each_by_a_name_of_its_own() -> None:
    def of(*names: str) -> Callable[[], None]:
        def declare() -> None:
            for name in names:
                Pool(f"{name}-core", Broker(name, given(name)), pool="core")

        return declare

    both = all_of(of("east", "west"))

    assert len(both) == 2 * len(all_of(of("east")))
    assert ("rabbitmq:index/queue:Queue", "west-core-orphan") in both
    assert ("pulumi-python:dynamic/osrdyne:Guard", "east-core") in both


@pytest.mark.fast
def test_limits_and_the_last_guard_of_a_vhost_come_with_the_last_of_its_pools() -> None:
    settings = declaring.settings(kubernetes=None, workers=None)

    def of(*pools: str) -> Callable[[], None]:
        def declare() -> None:
            broker = Broker("trains", settings)
            for pool in pools:
                Pool(pool, broker)

        return declare

    last = {
        ("pulumi-python:dynamic/osrdyne:Limits", "trains-limits"),
        ("pulumi-python:dynamic/osrdyne:StopGuard", "trains"),
    }
    assert not last & all_of(of("core"))
    assert last <= all_of(of("core", "other"))


@pytest.mark.fast
def test_a_password_that_is_an_output_makes_all_wait_for_what_the_broker_says(monkeypatch: pytest.MonkeyPatch) -> None:
    def declare() -> None:
        Pool("core", Broker("trains", given("trains", pulumi.Output.from_input("hidden-word"))))

    found = declaring.declared(declare)
    assert found.everything["pulumi-python:dynamic/osrdyne:Claim", "trains"]["password"]["value"] == "hidden-word"

    # A queue that has to be deleted and made again is refused: the text that says how would come too late.
    other = Topology((), (Queue(ORPHANS, "classic", {}),), (), ())
    settings = given("trains")
    monkeypatch.setattr(live, "read", lambda *_: Live(other))
    with pytest.raises(InfraError, match=f"{ORPHANS} must be deleted and declared again, which an administrator's"):
        look_late(settings, preflight.topologies(settings), "hidden-word")


@pytest.mark.fast
def test_an_option_that_would_skip_the_guards_is_refused() -> None:
    def declare() -> None:
        other = pulumi.ComponentResource("x:y:Z", "other")
        with pytest.raises(ConfigurationError, match="deleted_with: is not an option of these components"):
            Broker("trains", given("trains"), pulumi.ResourceOptions(deleted_with=other))

    declaring.declared(declare)


@pytest.mark.fast
@pytest.mark.timeout(60)
def test_a_pool_may_say_itself_that_it_comes_after_its_broker() -> None:
    def declare() -> None:
        broker = Broker("trains", given("trains"))
        Pool("core", broker, pulumi.ResourceOptions(depends_on=[broker], protect=True))

    assert ("pulumi-python:dynamic/osrdyne:StopGuard", "trains") in all_of(declare)


@pytest.mark.fast
def test_a_pool_is_declared_once_whatever_its_component_is_called() -> None:
    def declare() -> None:
        broker = Broker("trains", given("trains"))
        Pool("core", broker)
        with pytest.raises(ConfigurationError, match="pool core is declared twice"):
            Pool("again", broker, pool="core")

    declaring.declared(declare)


@pytest.mark.fast
def test_a_setting_that_is_an_output_and_may_not_be_one_is_refused() -> None:
    def declare() -> None:
        with pytest.raises(ConfigurationError, match=r"osrdyne:vhost: is not plain data .* may be outputs"):
            given(pulumi.Output.from_input("trains"))  # type: ignore[arg-type]

    declaring.declared(declare)


@pytest.mark.fast
def test_settings_of_a_program_are_checked_as_those_of_a_file_are() -> None:
    with pytest.raises(ConfigurationError, match=r"osrdyne:pools\[0\].unbind_dealy: is not a setting"):
        pool_settings(
            broker={"management": "http://b:1", "amqp": "amqp://b", "admin": "root"},
            admin_password="word",
            vhost="a",
            instance="b",
            pools=[{"name": "core", "unbind_dealy": 1}],
        )
    deployed = broker_settings(
        broker_deployment={"kind": "statefulset", "admin": "root", "image": "rabbitmq:4.3", "storage": "1Gi"},
        admin_password="word",
        kubernetes={"namespace": "rail"},
    )
    assert (deployed.deployment.admin, deployed.cluster.namespace) == ("root", "rail")
    with pytest.raises(ConfigurationError, match="'cores' is not a pool of these settings; their pools are core"):
        given("a").pool("cores")
