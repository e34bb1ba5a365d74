"""What `pulumi` refuses to do to a broker, says clearly, and lets be finished once the cause is gone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.infra.conftest import Stack
from tests.infra.test_dev import findings

ORPHANS = "core-orphan"


def queues(stack: Stack) -> set[str]:
    return {queue["name"] for queue in stack.broker.management.get("queues", stack.vhost)}


def nothing_made(stack: Stack) -> None:
    assert stack.vhost not in stack.vhosts()
    assert stack.users() == set()


def test_an_unknown_value_stops_a_preview_with_its_path_what_is_allowed_and_an_example(newest: Stack) -> None:
    newest.configure(pools=[{"name": "core", "unbind_dealy": 10}])

    done = newest.preview()

    assert done.code != 0
    assert "osrdyne:pools[0].unbind_dealy: is not a setting; known are name, keys, unbind_delay" in done.text
    assert "Example:\n" in done.text
    assert "Traceback" not in done.text


def test_a_password_in_the_clear_stops_a_preview(newest: Stack) -> None:
    newest.project.must("config", "set", "--stack", "dev", "--plaintext", "admin_password", "open-sesame")

    done = newest.preview()

    assert done.code != 0
    assert "osrdyne:admin_password: is a password in the clear" in done.text
    assert "open-sesame" not in done.text


def test_a_wrong_broker_password_is_said_before_anything_is_made(newest: Stack) -> None:
    newest.project.must("config", "set", "--stack", "dev", "--secret", "admin_password", stdin="not-the-password")

    done = newest.up()

    assert done.code != 0
    assert f"does not let user {newest.broker.admin} in: name or password is wrong" in done.text
    assert "not-the-password" not in done.text
    assert "Traceback" not in done.text
    nothing_made(newest)
    newest.configure()
    newest.must_up()


def test_a_user_that_is_not_an_administrator_is_refused(newest: Stack) -> None:
    name = f"weak.{newest.instance}"
    newest.broker.management.put("users", name, body={"password": "weak-word", "tags": "monitoring"})
    newest.configure(broker={**newest.values["broker"], "admin": name})
    newest.project.must("config", "set", "--stack", "dev", "--secret", "admin_password", stdin="weak-word")

    done = newest.up()

    assert done.code != 0
    assert f"user {name} of the broker at {newest.broker.management_url} is not an administrator" in done.text


def test_a_broker_that_is_away_is_said(newest: Stack) -> None:
    newest.configure(broker={**newest.values["broker"], "management": "http://127.0.0.1:9"})

    done = newest.up()

    assert done.code != 0
    assert "no broker answers at http://127.0.0.1:9" in done.text


def test_a_vhost_that_others_made_is_refused_in_a_preview_and_in_an_up(newest: Stack) -> None:
    newest.broker.management.add_vhost(newest.vhost, newest.broker.admin)
    newest.broker.management.put("queues", newest.vhost, "theirs", body={"durable": True})

    for done in (newest.preview(), newest.up()):
        assert done.code != 0
        assert f"vhost {newest.vhost} is on the broker already, and not of this stack" in done.text
        assert "Traceback" not in done.text
    assert newest.users() == set()
    assert queues(newest) == {"theirs"}

    newest.broker.management.delete("vhosts", newest.vhost)
    newest.must_up()


def test_a_user_that_others_made_is_refused(newest: Stack) -> None:
    theirs = f"core-worker.{newest.instance}"
    newest.broker.management.put("users", theirs, body={"password": "theirs", "tags": ""})

    done = newest.up()

    assert done.code != 0
    assert f"users {theirs} are on the broker already, and not of this stack" in done.text
    assert newest.vhost not in newest.vhosts()


def test_a_policy_of_others_that_would_win_stops_a_preview(stack: Stack) -> None:
    stack.must_up()
    rival: dict[str, Any] = {"pattern": "", "apply-to": "queues", "definition": {"max-length": 5}, "priority": 99}
    stack.broker.management.put("policies", stack.vhost, "everything", body=rival)

    done = stack.preview()

    assert done.code != 0
    assert "overridden by policy everything (priority 99" in done.text


def test_an_up_that_was_killed_is_finished_by_a_second_one(newest: Stack, tmp_path: Path) -> None:
    newest.kill_an_up(lambda: newest.vhost in newest.vhosts(), "the vhost")

    # None that a killed command can leave half written
    assert list((newest.project.directory / "state").rglob("*.attrs")) == []
    newest.project.must("cancel", "--yes", "--stack", "dev")
    newest.must_up()

    assert findings(newest, tmp_path) == []


def test_a_state_beside_which_an_empty_file_was_left_is_read_once_that_file_is_removed(newest: Stack) -> None:
    """What the page says of a killed `up` under the URL that Pulumi's own pages give."""
    project = newest.project
    usual = {"PULUMI_BACKEND_URL": project.environment()["PULUMI_BACKEND_URL"].partition("?")[0]}
    assert project.pulumi("stack", "init", "other", variables=usual).code == 0
    [beside] = (project.directory / "state").rglob("other.json.attrs")
    beside.write_bytes(b"")

    assert "failed to load checkpoint: EOF" in project.pulumi("stack", "export", "-s", "other", variables=usual).text
    beside.unlink()
    assert project.pulumi("stack", "export", "-s", "other").code == 0


def test_destroy_is_refused_with_counts_while_a_queue_holds_messages(stack: Stack) -> None:
    stack.must_up()
    stack.publish(ORPHANS, 3)
    stack.publish("core-poison", 1)

    done = stack.destroy()

    assert done.code != 0
    assert "core-orphan holds 3 messages, core-poison holds 1 message" in done.text
    assert "Traceback" not in done.text
    assert {ORPHANS, "core-poison", "core-dl"} <= queues(stack)
    assert len(stack.users()) == 6

    stack.configure(lose_messages_of=["core"])
    stack.must_up()
    done = stack.destroy()
    assert done.code == 0, done.text
    nothing_made(stack)


def test_destroy_goes_on_once_the_queues_are_empty(newest: Stack) -> None:
    newest.must_up()
    newest.publish(ORPHANS, 2)
    assert newest.destroy().code != 0

    newest.purge(ORPHANS)
    done = newest.destroy()

    assert done.code == 0, done.text
    nothing_made(newest)


def test_a_guard_waits_for_queues_and_nothing_else_so_that_it_is_there_whatever_fails(newest: Stack) -> None:
    newest.must_up()

    made = newest.project.state()["resources"]
    (guard,) = [resource for resource in made if resource["urn"].endswith("dynamic/osrdyne:Guard::core")]
    kinds = {urn.split("::")[2].rpartition("$")[2] for urn in guard["dependencies"]}
    assert kinds == {"rabbitmq:index/queue:Queue"}


def test_a_request_queue_that_the_daemon_made_counts_too(newest: Stack) -> None:
    newest.must_up()
    body = {"durable": True, "arguments": {"x-queue-type": "quorum", "x-osrdyne-key": "42"}}
    newest.broker.management.put("queues", newest.vhost, "core-req-42", body=body)
    newest.publish("core-req-42", 1)

    done = newest.destroy()

    assert done.code != 0
    assert "core-req-42 holds 1 message" in done.text
    assert "core-req-42" in queues(newest)


def test_the_removal_of_a_pool_whose_queues_hold_messages_is_refused(newest: Stack) -> None:
    both = [*newest.values["pools"], {"name": "other"}]
    newest.configure(pools=both)
    newest.must_up()
    newest.publish("other-orphan", 2)

    newest.configure()
    done = newest.up()

    assert done.code != 0
    assert "other-orphan holds 2 messages" in done.text
    assert {f"other-{name}" for name in ("orphan", "dl", "poison", "activity", "events")} <= queues(newest)
    newest.configure(pools=both, lose_messages_of=["other"])
    newest.must_up()
    newest.configure()
    newest.must_up()
    assert not {name for name in queues(newest) if name.startswith("other")}


def test_a_queue_that_must_be_replaced_is_kept_while_it_holds_messages(newest: Stack, tmp_path: Path) -> None:
    newest.must_up()
    newest.broker.management.delete("queues", newest.vhost, ORPHANS)
    body = {"durable": True, "arguments": {"x-queue-type": "quorum", "x-max-length": 7}}
    newest.broker.management.put("queues", newest.vhost, ORPHANS, body=body)
    newest.publish(ORPHANS, 2)

    refused = newest.up("--refresh")

    assert refused.code != 0
    assert "queue core-orphan must be deleted and declared again, and holds 2 messages" in refused.text
    newest.configure(lose_messages_of=["core"])
    newest.must_up("--refresh")
    assert findings(newest, tmp_path) == []


def test_another_vhost_for_the_stack_does_not_take_the_messages_of_the_old_one(newest: Stack) -> None:
    newest.must_up()
    newest.publish(ORPHANS, 2)

    newest.configure(vhost=f"{newest.vhost}-new")
    done = newest.up()

    assert done.code != 0
    assert "core-orphan holds 2 messages" in done.text
    assert ORPHANS in queues(newest)
