"""Pulumi and Ansible write a pool's addresses into files of the same names, which are those of the docs."""

from __future__ import annotations

import re
from pathlib import Path

import yaml  # type: ignore[import-untyped]

import steps
from osrdyne_infra import hand_over
from osrdyne_infra.pool_users import kinds
from osrdyne_protocol.broker.topology import topology
from osrdyne_protocol.settings import PoolSettings

#: Interface of the broker that an address is for, by the name of its file.
Files = dict[str, str]


def pulumi() -> Files:
    users = topology(PoolSettings("core")).users
    return {f"{name}.uri": kind for one in users for name, kind in kinds(one).items()}


def ansible() -> Files:
    tasks = yaml.safe_load(Path(steps.ROOT, "roles/daemon/tasks/configure.yml").read_text())
    [task] = [one for one in tasks if one["name"] == "Write each role's broker address"]
    return {one["file"]: one["kind"] for one in task["loop"]}


def settings_of_pulumi() -> str:
    outputs = {"pools": {"core": {}}, "addresses": {"core": {}}, "statistics_interval": 7.5}
    [text] = hand_over.files(outputs, Path("/etc/osrdyne")).values()
    return text


def test_both_write_the_same_files() -> None:
    assert pulumi() == ansible()


def test_the_docs_name_no_other_file() -> None:
    folder = "/etc/osrdyne/core/"
    for page in ("docs/settings.md", "docs/operations.md", "docs/environments.md"):
        text = Path(steps.ROOT, page).read_text()
        named = set(re.findall(rf"(?:{folder}|credentials/core/|`)([\w-]+\.uri)\b", text))
        assert named, page
        assert named <= ansible().keys(), page


def test_the_settings_name_files_that_are_written() -> None:
    template = Path(steps.ROOT, "roles/daemon/tasks/configure.yml").read_text()
    for text in (settings_of_pulumi(), template):
        named = dict(re.findall(r"(amqp|management)_uri_file\W+.*/([\w-]+\.uri)", text))
        assert named == {"amqp": "daemon.uri", "management": "daemon-management.uri"}
        assert {kind: ansible()[name] for kind, name in named.items()} == {"amqp": "amqp", "management": "management"}
