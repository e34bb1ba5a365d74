"""`osrdyne status` and `osrdyne lint` against a real daemon on a real broker."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from osrdyne_runtime.settings_text import to_toml
from testbed.command_line import CommandResult, osrdyne
from testbed.foreign_client import ForeignClient
from testbed.pool import DaemonProcess, Pool
from testbed.waiting import until
from testbed.workers import MINIMAL

MakePool = Callable[..., Pool]
MakeDaemon = Callable[..., DaemonProcess]
MakeClient = Callable[[Pool], ForeignClient]


def document(done: CommandResult) -> dict[str, Any]:
    return dict(json.loads(done.out))


def test_status_shows_the_daemon_and_every_key(
    make_pool: MakePool, make_daemon: MakeDaemon, make_client: MakeClient
) -> None:
    pool = make_pool()
    daemon = make_daemon(pool, worker=MINIMAL)
    client = make_client(pool)
    client.wait(client.send("42", b"x"), client.send("a\nb", b"x"), client.send("[red]", b"x"))

    def states() -> dict[str, str]:
        text = osrdyne("status", "--url", daemon.url).out.decode()
        assert "pool core, instance default: leading (acts)" in text
        return {line.split()[0]: line.split()[1] for line in text.splitlines()[4:]}

    # A worker's answer may be here before the daemon has heard of that worker.
    until(lambda: states() == {"42": "ready", r"'a\nb'": "ready", "[red]": "ready"}, what="all keys ready")

    def consumers() -> list[int | None]:
        return [key["consumers"] for key in document(osrdyne("status", "--url", daemon.url, "--json"))["keys"]]

    # The broker's totals come after a while.
    until(lambda: consumers() == [1, 1, 1], what="consumers in the status")
    found = document(osrdyne("status", "--url", daemon.url, "--json", "--key", "a\nb"))
    assert (found["ready"], found["state"], found["pool"]) == (True, "leading", "core")
    [key] = found["keys"]
    assert {name: key[name] for name in ("key", "state", "ready", "unacknowledged", "consumers", "workers")} == {
        "key": "a\nb",
        "state": "ready",
        "ready": 0,
        "unacknowledged": 0,
        "consumers": 1,
        "workers": 1,
    }
    assert 500 < key["unbinds_in"] <= 600
    assert "key 43 has no queue and no workers" in osrdyne("status", "--url", daemon.url, "--key", "43").out.decode()


def test_status_ends_in_good_order_where_its_output_cannot_be_shown_or_written(
    make_pool: MakePool, make_daemon: MakeDaemon, make_client: MakeClient
) -> None:
    pool = make_pool()
    daemon = make_daemon(pool, worker=MINIMAL)
    client = make_client(pool)
    client.wait(client.send("Zürich", b"x"))

    def status(redirection: str, **variables: str) -> tuple[int, str, str]:
        command = f'"$0" -m osrdyne.cli status --url "$1" {redirection}'
        words = ["bash", "-o", "pipefail", "-c", command, sys.executable, daemon.url]
        done = subprocess.run(words, capture_output=True, text=True, check=False, env={**os.environ, **variables})
        return done.returncode, done.stdout, done.stderr

    code, shown, errors = status("", PYTHONIOENCODING="ascii")
    assert (code, errors) == (0, "")
    assert r"Z\xfcrich" in shown
    no_space = (
        "osrdyne: standard output cannot be written: No space left on device; free space there, or send it elsewhere"
    )
    assert status("> /dev/full") == (2, "", f"{no_space}\n")
    assert status(">&-") == (0, "", "")
    assert status("| true") == (141, "", "")


def test_status_shows_why_a_key_has_no_worker(
    make_pool: MakePool, make_daemon: MakeDaemon, make_client: MakeClient
) -> None:
    pool = make_pool()
    daemon = make_daemon(pool, worker=["/nowhere/worker"])
    make_client(pool).send("42", b"x")

    def failed() -> bool:
        keys = document(osrdyne("status", "--url", daemon.url, "--json"))["keys"]
        return [key["state"] for key in keys] == ["failed"]

    until(failed, what="a failed key")
    assert "/nowhere/worker" in osrdyne("status", "--url", daemon.url).out.decode()


def test_status_of_a_daemon_without_a_broker_says_why_and_is_no(make_pool: MakePool, make_daemon: MakeDaemon) -> None:
    daemon = make_daemon(make_pool(), start=False)
    (daemon.directory / "amqp.uri").write_text("amqp://user:hidden@127.0.0.1:1/%2F")
    daemon.start(ready=False)
    daemon.wait_for("waiting")

    done = osrdyne("status", "--url", daemon.url)
    assert done.code == 1
    assert "waiting (cannot act, and tries again by itself; workers go on)" in done.out.decode()
    assert "nothing listens there" in done.line
    assert "hidden" not in done.err + done.out.decode()
    done = osrdyne("status", "--url", daemon.url, "--json")
    assert (done.code, document(done)["ready"]) == (1, False)


def test_a_probe_asks_whether_the_daemon_is_alive_or_ready_and_no_more(
    make_pool: MakePool, make_daemon: MakeDaemon
) -> None:
    daemon = make_daemon(make_pool())

    def probe(what: str) -> tuple[int, bytes]:
        done = osrdyne("status", "--url", daemon.url, "--probe", what)
        return done.code, done.out

    assert (probe("alive"), probe("ready")) == ((0, b"alive\n"), (0, b"ready\n"))
    # Without its broker it lives, and no restart helps it
    (daemon.directory / "amqp.uri").write_text("amqp://user:hidden@127.0.0.1:1/%2F")
    daemon.stop()
    daemon.start(ready=False)
    daemon.wait_for("waiting")
    assert (probe("alive"), probe("ready")) == ((0, b"alive\n"), (1, b""))
    assert "is not ready: waiting: " in osrdyne("status", "--url", daemon.url, "--probe", "ready").line
    daemon.stop()
    assert (probe("alive"), probe("ready")) == ((2, b""), (2, b""))


def test_status_of_a_leader_that_the_management_api_does_not_answer_says_so_and_is_no(
    make_pool: MakePool, make_daemon: MakeDaemon
) -> None:
    daemon = make_daemon(make_pool())
    assert osrdyne("status", "--url", daemon.url).code == 0
    address = daemon.directory / "management.uri"
    there = address.read_text()
    # As behind a broker that takes no connections any more, while those that it has go on
    address.write_text("http://user:hidden@127.0.0.1:1")
    until(lambda: osrdyne("status", "--url", daemon.url).code == 1, what="a status that is no")

    done = osrdyne("status", "--url", daemon.url)
    assert "leading (acts)" in done.out.decode()
    assert "messages are not counted: no management API at http://127.0.0.1:1" in done.out.decode()
    assert "cannot count messages, so it stops no worker" in done.line
    assert "hidden" not in done.err + done.out.decode()
    address.write_text(there)
    until(lambda: osrdyne("status", "--url", daemon.url).code == 0, what="a status that is yes")


def test_the_settings_file_names_the_address_of_the_daemon(make_pool: MakePool, make_daemon: MakeDaemon) -> None:
    daemon = make_daemon(make_pool(), start=False, status={"port": 0})
    file = daemon.directory / "settings.toml"
    daemon.start()

    assert "lets the system choose the port" in osrdyne("status", "--settings", str(file)).line
    port = daemon.url.rpartition(":")[2]
    file.write_text(to_toml({**daemon.settings, "status": {"port": int(port), "host": "0.0.0.0"}}))
    assert osrdyne("status", "--settings", str(file)).code == 0


def test_watching_shows_the_daemon_again_until_it_is_interrupted(make_pool: MakePool, make_daemon: MakeDaemon) -> None:
    daemon = make_daemon(make_pool())
    command = [sys.executable, "-m", "osrdyne.cli", "status", "--url", daemon.url, "--watch", "0.1", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as watching:
        assert watching.stdout
        seen = [json.loads(watching.stdout.readline()) for _ in range(2)]
        daemon.stop()
        while "error" not in seen[-1]:
            seen.append(json.loads(watching.stdout.readline()))
        watching.terminate()

    assert [daemon["state"] for daemon in seen[:2]] == ["leading", "leading"]
    assert "no daemon answers at" in seen[-1]["error"]


# --- lint -------------------------------------------------------------------------------------------------------------


def management_file(pool: Pool, directory: Path, user: str, password: str) -> str:
    file = directory / f"{user}.management"
    file.write_text(pool.broker.management_url.replace("://", f"://{user}:{password}@"))
    return str(file)


def rules(done: CommandResult) -> list[tuple[str, str]]:
    return [(finding["rule"], finding["object"]) for finding in document(done)["findings"]]


def test_lint_finds_nothing_on_a_pool_as_declared_and_what_was_changed(
    make_pool: MakePool, make_daemon: MakeDaemon, make_client: MakeClient, tmp_path: Path
) -> None:
    pool = make_pool()
    daemon = make_daemon(pool, worker=MINIMAL)
    client = make_client(pool)
    client.wait(client.send("42", b"x"))
    settings = ("--settings", str(daemon.directory / "settings.toml"))
    admin = management_file(pool, tmp_path, pool.broker.admin, pool.broker.admin_password)
    users = [
        f"{role}={getattr(pool.users, role)}"
        for role in ("client", "worker", "daemon", "monitor", "operator", "pipeline")
    ]
    as_admin = (*settings, "--management", admin, "--users", *(word for user in users for word in ("--user", user)))

    # Given a pool as declared, with a live request queue
    for words in (settings, (*settings, "--live"), as_admin):
        done = osrdyne("lint", *words)
        assert (done.code, done.out) == (0, b"nothing found\n"), done
    assert document(osrdyne("lint", *settings, "--live", "--json")) == {"findings": []}

    # When a person puts a policy over a request queue, takes a binding away and widens a permission
    api, vhost = pool.broker.management, pool.vhost
    policy = {"pattern": "^core-req-42$", "apply-to": "queues", "definition": {"max-length": 5}, "priority": 99}
    api.put("policies", vhost, "mine", body=policy)
    api.delete("bindings", vhost, "e", "core-orphan-xchg", "q", "core-orphan", "~")
    api.put("permissions", vhost, pool.users.client, body={"configure": ".*", "write": ".*", "read": ".*"})

    # Then each is found, by each user that may see it
    done = osrdyne("lint", *settings, "--live", "--json")
    assert done.code == 1
    assert set(rules(done)) == {
        ("missing", "binding core-orphan-xchg -> core-orphan"),
        ("overridden", "queue core-req-42"),
        ("no-dead-letter-route", "queue core-req-42"),
    }
    assert ("differs", f"permission of {pool.users.client}") in rules(osrdyne("lint", *as_admin, "--json"))
    text = osrdyne("lint", *settings, "--live").out.decode()
    assert "overridden by policy mine (priority 99" in text
    # And the broker agrees about which policy won
    until(
        lambda: api.get("queues", vhost, "core-req-42").get("policy") == "mine", what="the policy in the queue's totals"
    )


def test_lint_says_why_it_could_not_look(make_pool: MakePool, make_daemon: MakeDaemon, tmp_path: Path) -> None:
    pool = make_pool()
    daemon = make_daemon(pool, start=False)
    daemon.start()
    words = ("lint", "--settings", str(daemon.directory / "settings.toml"))

    def refused(*more: str) -> str:
        done = osrdyne(*words, *more)
        assert (done.code, done.out) == (2, b""), done
        assert not any(password in done.err for password in pool.passwords.values())
        return done.line

    def file(user: str, password: str | None = None) -> tuple[str, str]:
        return ("--management", management_file(pool, tmp_path, user, password or pool.passwords[user]))

    assert "check its name and password" in refused(*file(pool.users.daemon, "wrong"))
    assert "give it the tag 'management'" in refused(*file(pool.users.worker))
    assert "takes the tag 'administrator'" in refused(*file(pool.users.monitor), "--users")
    assert "no virtual host 'elsewhere'" in refused("--live", "--vhost", "elsewhere")
    assert "--management: cannot be read" in refused("--management", "/nowhere/file")
    assert "--users needs an administrator" in refused("--users")
    assert "--user 'boss=x': give ROLE=NAME, with a role of client, worker" in refused("--user", "boss=x")
    (tmp_path / "away").write_text("http://user:hidden@127.0.0.1:1")
    line = refused("--management", str(tmp_path / "away"))
    assert "no management API at http://127.0.0.1:1: Connection refused" in line
    assert "hidden" not in line
    (tmp_path / "odd").write_text("127.0.0.1:15672")
    assert "it looks like http://user:password@host:15672" in refused("--management", str(tmp_path / "odd"))
