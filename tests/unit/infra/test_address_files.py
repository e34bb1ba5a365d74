"""Pulumi and Ansible write a pool's addresses into files of the same names, which are those of the docs."""

from __future__ import annotations

import re
from pathlib import Path

import steps
from osrdyne_infra import hand_over
from osrdyne_infra.pool.users import kinds
from osrdyne_pool.settings import PoolSettings
from osrdyne_pool.topology import topology
from testbed.plugins import plugin

#: Interface of the broker that an address is for, by the name of its file.
Files = dict[str, str]


def pulumi() -> Files:
    users = topology(PoolSettings("core")).users
    return {f"{name}.uri": kind for user in users for name, kind in kinds(user).items()}


def ansible() -> Files:
    return {name: interface for name, (_, interface) in plugin("filter/osrdyne.py").ADDRESS_FILES.items()}


def settings_of_pulumi() -> str:
    outputs = {"pools": {"core": {}}, "addresses": {"core": {}}, "statistics_interval": 7.5}
    [text] = hand_over.files(outputs, Path("/etc/osrdyne")).values()
    return text


def test_both_write_the_same_files() -> None:
    assert pulumi() == ansible()


def test_the_docs_name_no_other_file() -> None:
    folder = "/etc/osrdyne/core/"
    for page in ("docs/reference/settings.md", "docs/howto/operations.md", "docs/howto/pulumi.md"):
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


def test_names_and_passwords_of_any_characters_are_percent_encoded_in_addresses() -> None:
    awkward = {"name": "o'b@c", "password": "a:b/c d%"}
    credentials = dict.fromkeys(("client", "worker", "daemon", "monitor", "operator", "pipeline"), awkward)
    owners = {role: f"account of {role}" for role in credentials}
    places = {"amqp": "amqps://broker:5671", "management": "https://broker:15671"}

    files = plugin("filter/osrdyne.py").osrdyne_address_files(credentials, places, "a/b", "?cacertfile=/ca", owners)

    made = {file["name"]: (file["content"], file["owner"]) for file in files}
    login = "o%27b%40c:a%3Ab%2Fc%20d%25"
    assert made["worker.uri"] == (f"amqps://{login}@broker:5671/a%2Fb?cacertfile=/ca\n", "account of worker")
    assert made["monitor-management.uri"] == (f"https://{login}@broker:15671?cacertfile=/ca\n", "account of monitor")
    assert made.keys() == ansible().keys()

    # Credentials of an earlier release have no pipeline
    del credentials["pipeline"]
    files = plugin("filter/osrdyne.py").osrdyne_address_files(credentials, places, "a/b", "", owners)
    assert {file["name"] for file in files} == made.keys() - {"pipeline.uri"}
