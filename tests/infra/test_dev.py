"""`pulumi up` of the stack `dev` on real brokers: what is there is what the topology model declares."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from benchmarks import stack_up
from benchmarks.rig import Rig
from osrdyne_pool.topology import Users, topology
from osrdyne_protocol.names import PoolNames
from osrdyne_runtime.settings_text import to_toml
from testbed.broker import Broker
from testbed.command_line import osrdyne
from testbed.foreign_client import ForeignClient
from testbed.pool import DaemonProcess, Pool
from testbed.workers import LIBRARY
from tests.infra.conftest import Stack


def changes(stack: Stack) -> dict[str, str]:
    """What a preview would do: name of each resource that would not stay the same -> operation."""
    steps_ = json.loads(stack.project.must("preview", "--stack", "dev", "--json").out)["steps"]
    return {step["urn"].rpartition("::")[2]: step["op"] for step in steps_ if step["op"] != "same"}


def declared(stack: Stack, name: str = "core") -> Pool:
    """A pool with the users and passwords that the stack gives out."""
    addresses = stack.project.outputs()["addresses"][name]
    split = {role: urlsplit(address) for role, address in addresses.items()}
    passwords = {unquote(uri.username or ""): unquote(uri.password or "") for uri in split.values()}
    pool = Pool(stack.broker, stack.vhost, stack.pool(name), Users.of(name, stack.instance), passwords)
    assert addresses["client"] == pool.client_uri
    return pool


def findings(stack: Stack, directory: Path, name: str = "core") -> list[Any]:
    """What `osrdyne lint` finds with an administrator's rights."""
    settings, management = directory / f"{name}.toml", directory / "admin.management"
    broker = stack.broker
    document = {
        "pool": {"instance": stack.instance, **chosen(stack, name)},
        "broker": {"amqp_uri_file": str(management), "management_uri_file": str(management)},
        "driver": {"kind": "noop"},
    }
    settings.write_text(to_toml(document))
    management.write_text(broker.management_url.replace("://", f"://{broker.admin}:{broker.admin_password}@"))
    done = osrdyne(
        "lint",
        "--settings",
        str(settings),
        "--management",
        str(management),
        "--vhost",
        stack.vhost,
        "--users",
        "--json",
    )
    assert done.code in (0, 1), done
    found: list[Any] = json.loads(done.out)["findings"]
    return found


def chosen(stack: Stack, name: str) -> dict[str, Any]:
    return next(pool for pool in stack.values["pools"] if pool["name"] == name)


@pytest.mark.both_versions
def test_the_live_broker_is_what_the_model_declares(stack: Stack, tmp_path: Path) -> None:
    stack.values["pools"] = [{"name": "core", "message_ttl": 1200}, {"name": "other", "delivery_limit": 3}]
    stack.configure()

    done = stack.up()

    assert done.code == 0, done.text
    print(f"pulumi up, RabbitMQ {stack.broker.version}: {done.seconds:.1f} s")
    assert findings(stack, tmp_path, "core") == []
    assert findings(stack, tmp_path, "other") == []
    # Such a search finds something where there is something.
    stack.broker.management.delete("policies", stack.vhost, "other-req")
    assert {finding["rule"] for finding in findings(stack, tmp_path, "other")} >= {"missing"}


@pytest.mark.both_versions
def test_a_second_up_changes_nothing(stack: Stack) -> None:
    stack.must_up()

    # Neither in what is declared, nor in what the broker says.
    stack.must_up("--refresh", "--expect-no-changes")


def test_a_changed_delay_changes_only_its_policy(stack: Stack, tmp_path: Path) -> None:
    stack.must_up()
    stack.values["pools"][0]["orphan_ttl"] = 333
    stack.configure()

    assert changes(stack) == {"core-orphan": "update"}
    stack.must_up()
    assert findings(stack, tmp_path) == []
    policy = stack.broker.management.get("policies", stack.vhost, "core-orphan")
    assert policy["definition"]["message-ttl"] == 333_000


def test_a_daemon_with_the_declared_users_and_settings_answers_a_request(stack: Stack, tmp_path: Path) -> None:
    stack.must_up()
    pool = declared(stack)
    daemon = DaemonProcess.of(pool, tmp_path / "daemon", worker=LIBRARY)
    outputs = stack.project.outputs()
    addresses, daemon.settings["pool"] = outputs["addresses"]["core"], outputs["pools"]["core"]
    assert (tmp_path / "daemon/management.uri").read_text() == addresses["daemon-management"]
    try:
        daemon.start()
        client = ForeignClient(addresses["client"], PoolNames("core").request_exchange)
        try:
            reply = client.ask("42", b"{}")
        finally:
            client.close()
    finally:
        daemon.close()

    assert reply.status == "ok"
    # What the daemon has made since is neither drift nor in the way.
    assert {queue["name"] for queue in stack.broker.management.get("queues", stack.vhost)} >= {"core-req-42"}
    stack.must_up("--refresh", "--expect-no-changes")


def test_limits_are_set_and_add_up_where_pools_share_the_vhost(newest: Stack) -> None:
    newest.must_up()
    alone = limits_of(newest)
    assert alone == topology(newest.pool("core")).vhost_limits
    newest.configure(pools=[*newest.values["pools"], {"name": "other", "limits": {"groups": 7}}])

    newest.must_up()

    assert limits_of(newest)["max-queues"] == 2 * alone["max-queues"] - 2000 + 7
    user = newest.broker.management.get("users", Users.of("other", newest.instance).client)
    assert user["limits"]["max-connections"] == 2000


def limits_of(stack: Stack) -> dict[str, int]:
    return dict(stack.broker.management.get("vhost-limits", stack.vhost)[0]["value"])


def test_a_rotated_password_is_another_one_and_no_other_changes(newest: Stack) -> None:
    newest.must_up()
    before = declared(newest).passwords

    newest.configure(rotate={"core": {"worker": "2026-11"}})
    newest.must_up()

    after = declared(newest).passwords
    assert {user for user in before if before[user] != after[user]} == {Users.of("core", newest.instance).worker}


def test_a_pool_is_added_and_removed_without_touching_another(newest: Stack) -> None:
    newest.must_up()
    newest.configure(pools=[*newest.values["pools"], {"name": "other"}])
    touched = changes(newest)
    newest.must_up()

    assert {name for name, op in touched.items() if op not in ("create", "update")} == set()
    assert {name for name, op in touched.items() if op == "update"} == {"vhost", "vhost-limits"}
    newest.configure()
    gone = changes(newest)
    newest.must_up()
    assert all(name.startswith("other") for name, op in gone.items() if op == "delete")
    queues = {queue["name"] for queue in newest.broker.management.get("queues", newest.vhost)}
    assert queues == {*PoolNames("core").counted, "core-activity", "core-events"}


def test_destroy_leaves_nothing_on_the_broker(newest: Stack) -> None:
    newest.must_up()

    done = newest.destroy()

    assert done.code == 0, done.text
    assert newest.vhost not in newest.vhosts()
    assert newest.users() == set()


SECRET_PLACES = ("state", "home", "infra/stacks/Pulumi.dev.yaml")


def clear_in(stack: Stack, secrets: list[str], said: list[str]) -> list[str]:
    """Where one of these secrets can be read: files of Pulumi, and what its commands said."""
    files = [
        path
        for place in SECRET_PLACES
        for path in [stack.project.directory / place, *(stack.project.directory / place).rglob("*")]
        if path.is_file()
    ]
    assert len(files) > 3
    found = [str(path) for path in files if any(secret.encode() in path.read_bytes() for secret in secrets)]
    return found + [f"what a command said: {text[:200]}" for text in said if any(secret in text for secret in secrets)]


def test_state_outputs_and_logs_hold_no_clear_password(newest: Stack) -> None:
    # Not at 9, where the engine traces every value that it passes on, as docs/howto/pulumi.md says.
    said = [newest.must_up("--debug", "--logtostderr", "--verbose=3").text]
    newest.configure(rotate={"core": {"worker": 2}})
    said.append(newest.must_up("--diff", "--show-config").text)
    others = (["stack", "output", "--json"], ["stack", "export"], ["config"])
    said += [newest.project.must(*words, "--stack", "dev").text for words in others]
    said.append(json.dumps(newest.project.state()))
    secrets = [*declared(newest).passwords.values(), newest.broker.admin_password]
    assert len(secrets) == 7

    assert clear_in(newest, secrets, said) == []
    assert newest.project.exposed() == []

    planted = newest.project.directory / "state/planted.log"
    planted.write_text(f"password {secrets[0]}\n")
    assert clear_in(newest, secrets, [*said, f"x{secrets[-1]}"]) == [
        str(planted),
        f"what a command said: x{secrets[-1]}",
    ]


def test_the_same_broker_under_another_address_keeps_everything(newest: Stack) -> None:
    newest.must_up()
    newest.publish("core-orphan")

    elsewhere = newest.broker.management_url.replace("127.0.0.1", "localhost")
    newest.configure(broker={**newest.values["broker"], "management": elsewhere})
    newest.must_up()

    assert (newest.broker.management.queue(newest.vhost, "core-orphan") or {})["messages"] == 1


@pytest.mark.usefixtures("make_stack")  # so that Pulumi is built before
def test_how_long_an_up_takes_is_measured_and_leaves_nothing(brokers: Callable[[str], Broker]) -> None:
    broker = brokers("4.3")
    before = {vhost["name"] for vhost in broker.management.get("vhosts")}

    rows = stack_up.measure(Rig(broker, quick=True))

    assert [row.peer_name for row in rows] == ["what is allowed"] * 2
    assert all(row.ours.median > 0 for row in rows)
    assert not {vhost["name"] for vhost in broker.management.get("vhosts")} - before
