"""The package of components, used by a program in another language, on the real engine."""

from __future__ import annotations

import asyncio
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import pulumi
import pytest
import yaml  # type: ignore[import-untyped]
from google.protobuf import json_format, struct_pb2

import versions
from osrdyne_infra.components.arguments import broker_settings, pool_settings
from osrdyne_infra.configuration import HIDDEN
from osrdyne_infra.guard import known_later
from osrdyne_infra.package import plugin
from osrdyne_infra.package.pools import BrokerOnCluster, Pools
from osrdyne_infra.package.resource import PROVIDERS, Registration
from osrdyne_infra.package.schema import COMPONENTS, schema
from testbed.pulumi.building import yaml_host
from testbed.pulumi.stack import CommandResult, Project
from tests.infra import declaring
from tests.infra.conftest import Stack
from tests.infra.test_components import give
from tests.infra.test_refusals import ORPHANS

PAGE = Path(__file__).parents[2] / "docs/howto/pulumi-package.md"
#: What `pip install osrdyne-infra` installs.
PLUGIN = Path(sys.executable).parent / "pulumi-resource-osrdyne"


@dataclass
class YamlProject(Project):
    """A project in YAML. The Python that is first on its PATH has nothing to do with us."""

    def __post_init__(self) -> None:
        for name in ("state", "home", "python"):
            (self.directory / name).mkdir()
        for name in ("python", "python3"):
            decoy = self.directory / "python" / name
            decoy.write_text("#!/bin/sh\necho >&2 the Python that is first on PATH was run\nexit 1\n")
            decoy.chmod(0o755)
        self.python = self.directory / "python"

    def environment(self) -> dict[str, str]:
        found = super().environment()
        return {**found, "PATH": f"{yaml_host()}:{found['PATH']}"}

    def up(self, *words: str) -> CommandResult:
        return self.pulumi("up", "--yes", "--skip-preview", "--stack", self.stack, *words)

    def destroy(self) -> CommandResult:
        return self.pulumi("destroy", "--yes", "--skip-preview", "--stack", self.stack)


def written(stack: Stack, project: YamlProject) -> None:
    """Write the program of the page, on the broker, in the vhost and with the instance of a stack."""
    program = PAGE.read_text().partition("```yaml\n")[2].partition("```")[0]
    given = {
        "admin: admin": f"admin: {stack.broker.admin}",
        "http://127.0.0.1:15672": stack.broker.management_url,
        "amqp://127.0.0.1:5672": f"amqp://127.0.0.1:{stack.broker.amqp_port}",
        "vhost: trains": f"vhost: {stack.vhost}",
        # A whole number comes to the plugin as a float.
        "unbind_delay: PT10M": "unbind_delay: 600",
        "instance: trial": f"instance: '{stack.instance}'",
        "outputs:": "outputs:\n  databases: ${trains.databases}\n  namespaces: ${trains.namespaces}",
    }
    for old, new in given.items():
        assert old in program, old
        program = program.replace(old, new)
    (project.directory / "Pulumi.yaml").write_text(program)


def project_with_package(directory: Path) -> YamlProject:
    """A project in a new folder, which has the package, and no program yet."""
    directory.mkdir()
    made = YamlProject(directory, passphrase="phrase")
    (directory / "Pulumi.yaml").write_text("name: trains\nruntime: yaml\n")
    made.must("plugin", "install", "resource", "osrdyne", versions.current(), "--file", str(PLUGIN))
    made.must("package", "add", "osrdyne")
    return made


@pytest.fixture
def yaml_project(newest: Stack, tmp_path: Path) -> YamlProject:
    """A project with the program of the page, and a stack."""
    made = project_with_package(tmp_path / "own")
    written(newest, made)
    made.must("stack", "init", made.stack)
    give(made, newest.broker.admin_password)
    return made


def test_a_program_in_another_language_has_pools_that_are_guarded(newest: Stack, yaml_project: YamlProject) -> None:
    project = yaml_project

    # A wrong password is said before anything is made, in a preview too
    give(project, "not-the-password")
    for words in (("preview",), ("up", "--yes", "--skip-preview")):
        refused = project.pulumi(*words, "--stack", project.stack)
        assert refused.code != 0
        assert f"does not let user {newest.broker.admin} in: name or password is wrong" in refused.text
        assert "Traceback" not in refused.text
    assert newest.vhost not in newest.vhosts()

    # And the right one makes a pool, once
    give(project, newest.broker.admin_password)
    project.must("preview", "--stack", project.stack)
    made = project.up()
    assert made.code == 0, made.text
    again = project.up("--expect-no-changes")
    assert again.code == 0, again.text
    assert len(newest.users()) == 6
    outputs = project.outputs()
    assert (outputs["databases"], outputs["namespaces"]) == ({}, {})
    addresses = outputs["addresses"]["core"]
    assert {"client", "worker", "daemon", "daemon-management"} <= set(addresses)

    # No resource is one that the Python on PATH would serve, and no password is in the clear
    kinds = {resource["type"] for resource in project.state()["resources"]}
    assert {"osrdyne:index:Guard", "osrdyne:index:StopGuard", "osrdyne:index:Claim"} <= kinds
    assert not [kind for kind in kinds if kind.startswith("pulumi-python:")]
    project.secrets = {"admin_password": newest.broker.admin_password}
    assert project.exposed() == []

    # Which is not deleted with its messages
    newest.publish(ORPHANS)
    done = project.destroy()
    assert done.code != 0
    assert f"{ORPHANS} holds 1 message" in done.text
    assert newest.broker.management.queue(newest.vhost, ORPHANS)
    newest.purge(ORPHANS)
    assert project.destroy().code == 0
    assert newest.vhost not in newest.vhosts()
    assert newest.users() == set()


@pytest.mark.fast
def test_the_package_declares_on_a_cluster_what_our_own_program_does() -> None:
    pools, broker = declaring.settings(**declaring.RELAY, **declaring.JOBS), declaring.broker_settings()

    made, of_ours = declaring.declared(lambda: have(Pools("trains", pools))), declaring.pools(pools)
    assert in_the_clear(made) == in_the_clear(of_ours)
    assert made.objects.keys() == of_ours.objects.keys()
    assert len(made.databases) == 1
    deployed = declaring.declared(lambda: have(BrokerOnCluster("broker", broker)))
    assert deployed.objects == declaring.deployed(broker).objects


def have(_: pulumi.ComponentResource) -> None:
    """Return nothing of a component that is declared."""


def in_the_clear(found: declaring.DeclaredObjects) -> dict[tuple[str, str], declaring.Inputs]:
    """The objects without Secrets, in which a password differs by the name of its component."""
    return {key: made for key, made in found.objects.items() if key[0] != "Secret"}


def kinds_of_two() -> set[str]:
    """The kinds of what a program declares that has two of the component, with a pool of one name each."""

    def declare() -> None:
        for name in ("east", "west"):
            Pools(name, declaring.settings(kubernetes=None, workers=None, vhost=name, instance=name))

    return {kind for kind, _ in declaring.declared(declare).everything if "osrdyne" in kind}


@pytest.mark.fast
def test_what_is_ours_is_of_the_package_in_its_plugin_and_dynamic_in_a_program(monkeypatch: pytest.MonkeyPatch) -> None:
    used = PROVIDERS.keys() - {"JobsDatabase"}
    components = {"osrdyne:index:Pools", "osrdyne:index:Broker", "osrdyne:index:Pool", "osrdyne:broker:PoolUsers"}

    assert kinds_of_two() - components == {f"pulumi-python:dynamic/osrdyne:{kind}" for kind in used}
    monkeypatch.setattr(Registration, "version", "0.1.0")
    assert kinds_of_two() - components == {f"osrdyne:index:{kind}" for kind in used}


@pytest.mark.fast
@pytest.mark.parametrize("component", COMPONENTS)
def test_the_schema_and_the_page_have_the_same_settings(component: str) -> None:
    made, described = schema("1.2.3")["resources"][component], COMPONENTS[component]

    page = PAGE.read_text().partition(f"### `{component.rpartition(':')[2]}`\n")[2].partition("###")[0]
    lines = re.findall(r"^\| (`.+`) \| (yes|no) ", page, re.MULTILINE)
    rows = [(name, needed) for names, needed in lines for name in re.findall(r"\w+", names)]
    assert {name for name, _ in rows} == made["inputProperties"].keys()
    assert {name for name, needed in rows if needed == "yes"} == set(made["requiredInputs"])
    assert described.arguments.__annotations__.keys() == described.settings.keys()
    assert made["properties"].keys() == described.outputs.keys()
    for name, taken in made["inputProperties"].items():
        assert (taken.get("secret", False), taken.get("plain", False)) == (name in HIDDEN, name not in HIDDEN)


@pytest.mark.fast
def test_what_the_page_shows_is_taken() -> None:
    program, on_cluster, broker = map(yaml.safe_load, re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL))

    pools = pool_settings(**{**program["resources"]["trains"]["properties"], **on_cluster})
    assert pools.cluster
    assert pools.relay
    assert [pool.jobs is not None for pool in pools.pools] == [True, False]
    given = {**broker["resources"]["broker"]["properties"], "admin_password": "word"}
    assert broker_settings(**given).deployment.kind == "statefulset"


@pytest.mark.fast
def test_what_serves_our_resources_sees_no_marks_and_what_was_secret_stays_secret() -> None:
    word = {plugin.MARK: plugin.SECRET, "value": "word"}
    output = {plugin.MARK: plugin.OUTPUT, "value": {"one": 2.0}, "secret": False}
    given = properties({"password": word, "deep": [word]})

    found = plugin.read(given)
    answer = json_format.MessageToDict(asyncio.run(plugin.written({**found, "more": "text"}, given)))

    assert found == {"password": "word", "deep": ["word"]}
    assert answer["password"] == word
    assert answer["deep"] == {plugin.MARK: plugin.SECRET, "value": ["word"]}
    assert answer["more"] == "text"

    # As components get their inputs
    assert plugin.read(properties({"users": output})) == {"users": {"one": 2}}
    unknown = plugin.read(properties({"later": {plugin.MARK: plugin.OUTPUT, "secret": True}}))
    assert known_later(unknown["later"])


def properties(values: dict[str, object]) -> struct_pb2.Struct:
    made: struct_pb2.Struct = json_format.ParseDict(values, struct_pb2.Struct())
    return made


@pytest.mark.fast
def test_a_setting_comes_as_a_program_gives_it() -> None:
    made = plugin.setting([{"whole": 600.0, "part": 0.5, "on": True}])
    assert made == [{"whole": 600, "part": 0.5, "on": True}]
    assert {name: type(value) for name, value in made[0].items()} == {"whole": int, "part": float, "on": bool}
    # Tables come in another order each time
    assert list(made[0]) == ["on", "part", "whole"]
