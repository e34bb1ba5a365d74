"""What a person made on a broker by hand becomes a stack's, by the commands that are printed."""

from __future__ import annotations

import io
import json
import secrets
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from osrdyne_infra import adopt
from osrdyne_infra.broker.live import Live
from osrdyne_infra.configuration import StackSettings
from osrdyne_infra.errors import ConfigurationError
from osrdyne_pool.topology import Binding, Topology, Users, topology
from testbed.pool import apply
from testbed.waiting import until
from tests.infra.conftest import Stack
from tests.infra.test_dev import findings
from tests.infra.test_refusals import ORPHANS

CONFIG: dict[str, Any] = {
    "osrdyne:broker": {
        "value": "...",
        "objectValue": {"management": "http://127.0.0.1:9", "amqp": "amqp://b", "admin": "root"},
        "secret": False,
    },
    "osrdyne:admin_password": {"value": "hidden-word", "secret": True},
    "osrdyne:vhost": {"value": "a/b%", "secret": False},
    "osrdyne:instance": {"value": "one", "secret": False},
    "osrdyne:pools": {"value": "...", "objectValue": [{"name": "core"}], "secret": False},
}


def settings() -> StackSettings:
    return adopt.read(CONFIG)


def run(monkeypatch: pytest.MonkeyPatch, file: Path, given: str) -> None:
    monkeypatch.setattr(sys, "argv", ["adopt", "--stack", "dev", str(file)])
    monkeypatch.setattr(sys, "stdin", io.StringIO(given))
    adopt.main()


@pytest.mark.fast
def test_the_configuration_is_read_as_pulumi_prints_it() -> None:
    assert [pool.name for pool in settings().pools] == ["core"]
    assert settings().admin_password == "hidden-word"
    with pytest.raises(ConfigurationError, match="in the clear"):
        adopt.read({**CONFIG, "osrdyne:admin_password": {"value": "hidden-word", "secret": False}})


@pytest.mark.fast
def test_a_setting_without_a_namespace_is_one_of_the_project() -> None:
    short = {name.removeprefix("osrdyne:"): value for name, value in CONFIG.items()}

    assert adopt.read(short) == settings()
    with pytest.raises(ConfigurationError, match="osrdyne:admin_password: is a password in the clear"):
        adopt.read({**short, "admin_password": {"value": "hidden-word", "secret": False}})


@pytest.mark.fast
def test_only_what_is_there_and_declared_is_listed() -> None:
    whole = topology(settings().pools[0])
    there = Topology(
        exchanges=whole.exchanges[:1],
        queues=whole.queues,
        bindings=(whole.bindings[0], Binding("theirs", "core-orphan")),
        policies=whole.policies[:1],
    )

    listed = adopt.objects("dev", settings(), Live(there), {"root", Users.of("core", "one").worker, "stranger"})

    assert [(resource["name"], resource["id"]) for resource in listed["resources"]] == [
        ("vhost", "a/b%"),
        ("vhost-admin", "root@a/b%"),
        ("core-req-xchg", "core-req-xchg@a/b%"),
        ("core-req-xchg", "core-req-xchg@a/b%"),
        ("core-orphan-xchg-to-core-orphan", "a%2Fb%25/core-orphan-xchg/core-orphan/queue/~"),
        ("core-worker.one", "core-worker.one@a/b%"),
    ]
    # A name in the table that a resource has, too, would be taken for the resource.
    assert not {resource["name"] for resource in listed["resources"]} & set(listed["nameTable"])
    assert {resource["parent"] for resource in listed["resources"]} <= set(listed["nameTable"])


@pytest.mark.fast
@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("", "pulumi config --json --show-secrets"),
        ("[]", "pulumi config --json --show-secrets"),
        ("{}", "osrdyne:broker: is missing"),
        (json.dumps(CONFIG), "no broker answers at http://127.0.0.1:9"),
    ],
)
def test_what_cannot_be_adopted_from_ends_with_what_to_do(
    given: str, said: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with pytest.raises(SystemExit, match=said) as ended:
        run(monkeypatch, tmp_path / "adopt.json", given)

    assert "hidden-word" not in str(ended.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.timeout(900)
def test_a_topology_made_by_hand_is_adopted_with_its_messages(newest: Stack, tmp_path: Path) -> None:
    api, vhost, file = newest.broker.management, newest.vhost, tmp_path / "adopt.json"
    given = newest.project.must("config", "--json", "--show-secrets", "--stack", "dev").out
    declared = topology(adopt.read(json.loads(given)).pools[0])
    api.add_vhost(vhost, newest.broker.admin)
    apply(newest.broker, vhost, declared, {user.name: secrets.token_hex(8) for user in declared.users})
    # Not all is as it should be.
    api.delete("policies", vhost, "core-poison")
    api.delete("queues", vhost, "core-poison")
    api.put("queues", vhost, "core-poison", body={"durable": True})
    assert "core-poison cannot be changed" in printed(given, file).stderr
    api.delete("queues", vhost, "core-poison")
    newest.publish(ORPHANS, 2)

    done = printed(given, file)
    said = {}
    for command in done.stdout.replace("\\\n", "").splitlines():
        words = shlex.split(command)[1:]
        said[words[0]] = newest.project.must(*words).text

    assert newest.broker.admin_password not in done.stdout + file.read_text()
    assert "imported" in said["import"]
    assert "replace" not in said["preview"]
    assert findings(newest, tmp_path) == []
    until(lambda: (api.queue(vhost, ORPHANS) or {}).get("messages") == 2, what="the messages")


def printed(given: str, file: Path) -> subprocess.CompletedProcess[str]:
    """Run `osrdyne_infra.adopt`, and return what it printed."""
    return subprocess.run(
        [sys.executable, "-m", "osrdyne_infra.adopt", "--stack", "dev", str(file)],
        check=False,
        input=given,
        capture_output=True,
        text=True,
    )
