"""`osrdyne pool`: a pool is made, compared and removed without another tool, by a user with just the rights for it."""

from __future__ import annotations

import dataclasses
import json
import re
import secrets
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pika
import pytest

import steps
from osrdyne_pool.broker import management_json
from osrdyne_pool.settings import PoolSettings
from osrdyne_pool.topology import Users, topology
from testbed import command_line
from testbed.plugins import run_module
from testbed.pool import STATISTICS_INTERVAL
from testbed.waiting import until
from tests.conftest import Vhost

PASSWORD = "word"
RIGHTS = {"configure": ".*", "write": ".*", "read": ".*"}


@dataclass
class Site:
    """A virtual host, a settings file, and a user who may declare things there."""

    vhost: Vhost
    folder: Path
    pool: str = field(default_factory=lambda: f"pool-{secrets.token_hex(4)}")
    made: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.user = self.add_user("policymaker")
        self.settings = self.folder / "settings.toml"
        broker = f"[broker]\nstatistics_interval = {STATISTICS_INTERVAL}\n"
        self.settings.write_text(f'[pool]\nname = "{self.pool}"\n{broker}[driver]\nkind = "noop"\n')

    @property
    def heading(self) -> str:
        """What is printed first."""
        return f"broker 127.0.0.1:{self.vhost.broker.amqp_port}, virtual host {self.vhost.name}\n"

    @property
    def api(self) -> Any:
        return self.vhost.broker.management

    def add_user(self, tags: str, **rights: str) -> str:
        self.made.append(f"declares-{secrets.token_hex(4)}")
        self.api.put("users", self.made[-1], body={"password": PASSWORD, "tags": tags})
        self.api.put("permissions", self.vhost.name, self.made[-1], body={**RIGHTS, **rights})
        return self.made[-1]

    def run(self, *words: str, user: str = "", password: str = PASSWORD, vhost: str = "") -> command_line.CommandResult:
        """Run `osrdyne pool WORDS` as the user."""
        broker = self.vhost.broker
        variables = {
            "OSRDYNE_BROKER": broker.amqp_uri(user or self.user, password, vhost or self.vhost.name),
            "OSRDYNE_BROKER_MANAGEMENT": broker.management_url,
        }
        settings = () if "--settings" in words else ("--settings", str(self.settings))
        return command_line.osrdyne("pool", *words, *settings, variables=variables)

    def remove(self, *words: str) -> command_line.CommandResult:
        """Run `osrdyne pool remove WORDS`, once the broker counts consumers: of a stream, that may take seconds."""
        until(lambda: all("consumers" in queue for queue in self.api.get("queues", self.vhost.name)), what="the counts")
        return self.run("remove", *words)

    def run_as_administrator(self, *words: str) -> command_line.CommandResult:
        return self.run(*words, user=self.vhost.broker.admin, password=self.vhost.broker.admin_password)

    def publish(self, queue: str) -> None:
        with pika.BlockingConnection(pika.URLParameters(self.vhost.amqp_uri())) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            channel.basic_publish("", queue, b"")

    def queues(self) -> list[str]:
        return [queue["name"] for queue in self.api.get("queues", self.vhost.name)]

    def close(self) -> None:
        """Users belong to the broker, and outlive the vhost."""
        there = {user["name"] for user in self.api.get("users")}
        for name in there & {*self.made, *dataclasses.astuple(Users.of(self.pool))}:
            self.api.delete("users", name)


@pytest.fixture
def site(vhost: Vhost, tmp_path: Path) -> Iterator[Site]:
    made = Site(vhost, tmp_path)
    yield made
    made.close()


def test_apply_makes_what_diff_foretells_and_a_second_run_finds_nothing_to_do(site: Site) -> None:
    foretold = site.run("diff")
    assert foretold.code == 1
    assert site.queues() == []

    made = site.run("apply")

    assert made.code == 0, made
    assert made.out.decode().replace("made ", "would make ") == foretold.out.decode()
    assert len(site.queues()) == 8
    assert site.run("diff").code == 0
    assert site.run("apply").out.decode() == site.heading + "nothing to do: the broker has the pool as declared\n"


def test_the_ansible_module_finds_nothing_to_do_after_apply(site: Site) -> None:
    assert site.run_as_administrator("apply", "--users", str(site.folder / "users")).code == 0
    broker, declared = site.vhost.broker, topology(PoolSettings(site.pool))
    addresses = {user.name: (site.folder / f"users/{user.role}.uri").read_text() for user in declared.users}
    passwords = {name: pika.URLParameters(address.strip()).credentials.password for name, address in addresses.items()}

    found = run_module(
        "osrdyne_topology",
        {
            "url": broker.management_url,
            "admin": broker.admin,
            "admin_password": broker.admin_password,
            "vhost": site.vhost.name,
            "requests": [
                dataclasses.asdict(request) for request in management_json.requests(declared, site.vhost.name)
            ],
            "passwords": passwords,
            "password_hashes": passwords,
            "_ansible_check_mode": True,
        },
    )

    assert found["changes"] == []


def test_a_changed_value_is_shown_beside_the_declared_one_and_put_right(site: Site) -> None:
    site.run("apply")
    path = ("policies", site.vhost.name, f"{site.pool}-req")
    policy = site.api.get(*path)
    site.api.put(*path, body={**policy, "definition": {**policy["definition"], "delivery-limit": 20}})

    found = json.loads(site.run("diff", "--json").out)

    value = {"definition.delivery-limit": {"is": 20, "declared": 5}}
    assert found["changes"] == [{"object": f"policy {site.pool}-req", "action": "change", "values": value}]
    assert found["vhost"] == site.vhost.name
    said = f"changed policy {site.pool}-req\n  definition.delivery-limit is 20, declared is 5\n"
    assert site.run("apply").out.decode() == site.heading + said
    assert site.api.get(*path) == policy


def test_a_queue_of_another_type_is_refused_before_anything_is_changed(site: Site) -> None:
    queue = f"{site.pool}-dl"
    site.api.put("queues", site.vhost.name, queue, body={"durable": True, "arguments": {"x-queue-type": "classic"}})

    assert f"cannot change queue {queue}\n" in site.run("diff").out.decode()
    refused = site.run("apply")

    assert refused.code == 2
    assert f"queue {queue}: arguments.x-queue-type is 'classic', declared is 'quorum'" in refused.line
    assert site.queues() == [queue]


@pytest.mark.parametrize(
    ("tags", "rights", "password", "what_to_do"),
    [
        ("policymaker", {}, "wrong", "is refused; check its name and password"),
        ("", {}, "word", "has no tag for the management API; give it the tag 'management'"),
        ("management", {}, "word", "may not change policies; give it the tag 'policymaker'"),
        ("policymaker", {"configure": "^$"}, "word", "give it all permissions on the virtual host"),
    ],
)
def test_a_user_who_may_not_declare_a_pool_gets_one_line_that_says_what_to_do(
    site: Site, tags: str, rights: dict[str, str], password: str, what_to_do: str
) -> None:
    user = site.add_user(tags, **rights)

    refused = site.run("apply", user=user, password=password)

    assert refused.code == 2
    assert f"user '{user}' {what_to_do}" in refused.line or (rights and what_to_do in refused.line)


def test_json_says_what_was_done_before_an_error(site: Site) -> None:
    found = json.loads(site.run("apply", "--json", user=site.add_user("policymaker", configure="^$")).out)

    assert {(change["object"].split()[0], change["action"]) for change in found["changes"]} == {("policy", "make")}
    assert "give it all permissions on the virtual host" in found["error"]
    assert len(list(site.api.get("policies", site.vhost.name))) == len(found["changes"])


def test_what_cannot_be_asked_gets_one_line_that_says_what_to_do(site: Site) -> None:
    users = str(site.folder / "users")
    assert "that takes the tag 'administrator'" in site.run("apply", "--users", users).line
    assert "no virtual host 'none'" in site.run("diff", vhost="none").line
    nameless = command_line.osrdyne("pool", "diff", "--settings", str(site.settings))
    assert nameless.code == 2
    assert "no broker is named; set OSRDYNE_BROKER=amqp://" in nameless.line


def test_users_get_their_rights_and_files_with_addresses_and_keep_their_passwords(site: Site) -> None:
    users = site.folder / "users"
    assert site.run_as_administrator("apply", "--users", str(users)).code == 0
    files = {file.name: file.read_text() for file in users.iterdir()}

    assert {file.stat().st_mode & 0o777 for file in users.iterdir()} == {0o600}
    with pika.BlockingConnection(pika.URLParameters(files["worker.uri"].strip())):
        pass
    assert b"nothing to do" in site.run_as_administrator("apply", "--users", str(users)).out
    # A user whose file is lost gets a new password, and only that user.
    (users / "worker.uri").unlink()
    said = site.run_as_administrator("apply", "--users", str(users)).out.decode()
    assert [line for line in said.splitlines() if not line.startswith((" ", "broker"))] == [
        f"made file {users}/worker.uri",
        f"changed user {site.pool}-worker",
    ]
    changed = {file.name for file in users.iterdir() if file.read_text() != files[file.name]}
    assert changed == {"worker.uri"}


def test_a_directory_without_the_users_that_are_there_is_refused_but_for_new_passwords(
    site: Site,
) -> None:
    assert site.run_as_administrator("apply", "--users", str(site.folder / "users")).code == 0
    mistyped = site.folder / "user"

    for command in ("diff", "apply"):
        refused = site.run_as_administrator(command, "--users", str(mistyped))
        assert refused.code == 2
        assert f"{mistyped} has no address of them: programs that run would be shut out" in refused.line
    assert not mistyped.exists()
    assert b"nothing to do" in site.run_as_administrator("apply", "--users", str(site.folder / "users")).out
    # With the word for it, they get them.
    assert site.run_as_administrator("apply", "--users", str(mistyped), "--new-passwords").code == 0
    with pika.BlockingConnection(pika.URLParameters((mistyped / "worker.uri").read_text().strip())):
        pass


def test_a_user_of_another_virtual_host_is_neither_changed_nor_deleted(site: Site) -> None:
    user, elsewhere = f"{site.pool}-client", f"{site.vhost.name}-other"
    site.api.put("users", user, body={"password": "word", "tags": ""})
    site.api.put("vhosts", elsewhere, body={})
    site.api.put("permissions", elsewhere, user, body=RIGHTS)
    try:
        refused = site.run_as_administrator("apply", "--users", str(site.folder / "users"))
        assert refused.code == 2
        assert f"user {user} has another password and serves virtual host {elsewhere}" in refused.line
        site.remove()
        assert site.run_as_administrator("remove", "--users").code == 0
        assert site.api.get("users", user)["name"] == user
    finally:
        site.api.delete("vhosts", elsewhere)


def test_remove_refuses_to_lose_messages_and_says_which_queue_holds_them(site: Site) -> None:
    site.run("apply")
    site.publish(f"{site.pool}-poison")
    until(lambda: (site.api.queue(site.vhost.name, f"{site.pool}-poison") or {}).get("messages"), what="a message")

    refused = site.remove()

    assert refused.code == 2
    assert f"nothing was removed: {site.pool}-poison holds 1 message;" in refused.line
    assert site.run("diff").code == 0
    # With the word for it, they go.
    removed = site.remove("--with-messages", "--json")
    assert f"queue {site.pool}-poison, with 1 message" in json.loads(removed.out)["removed"]
    assert site.queues() == []
    assert list(site.api.get("policies", site.vhost.name)) == []
    assert site.remove().out.decode() == site.heading + "nothing to do: the broker has nothing of the pool\n"


def test_remove_refuses_while_a_program_of_the_pool_consumes(site: Site) -> None:
    site.run("apply")
    with pika.BlockingConnection(pika.URLParameters(site.vhost.amqp_uri())) as connection:
        connection.channel().basic_consume(f"{site.pool}-orphan", lambda *_: None)
        path = ("queues", site.vhost.name, f"{site.pool}-orphan")
        until(lambda: site.api.get(*path).get("consumers"), what="a consumer")

        refused = site.remove("--with-messages")

    assert refused.code == 2
    assert f"{site.pool}-orphan has 1 consumer; end its daemon and its workers" in refused.line
    assert site.run("diff").code == 0


def test_the_commands_of_the_page_do_what_it_says(site: Site) -> None:
    page = Path(steps.ROOT, "docs/reference/cli-pool.md").read_text()
    lines = re.findall(r"^osrdyne pool (.*?)(?:\s+#.*)?$", page, re.MULTILINE)
    files = {"/etc/osrdyne/core/settings.toml": str(site.settings), "/etc/osrdyne/core": str(site.folder / "users")}
    (site.folder / "admin.uri").write_text(site.vhost.amqp_uri())
    files["admin.uri"] = str(site.folder / "admin.uri")
    done = []
    for line in lines:
        command, *words = (files.get(word, word) for word in shlex.split(line))
        done.append(site.remove(*words) if command == "remove" else site.run(command, *words))

    assert [(line.split()[0], done_.code) for line, done_ in zip(lines, done, strict=True)] == [
        ("diff", 1),
        ("apply", 0),
        ("remove", 0),
        ("apply", 0),
    ]
