"""Settings that change while the daemon runs, on a real broker: what it goes over to, and what it leaves alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from osrdyne_runtime.settings_text import to_toml
from testbed.foreign_client import ForeignClient
from testbed.pool import DaemonProcess, Pool
from testbed.waiting import until
from testbed.workers import SCRIPTED

MakePool = Callable[..., Pool]
MakeDaemon = Callable[..., DaemonProcess]
MakeClient = Callable[[Pool], ForeignClient]

CHANGED = "settings changed; beginning again with them; workers go on"
REJECTED = "changed settings cannot be used; going on with those before"


def write(daemon: DaemonProcess, text: str) -> None:
    """Change the settings file at once, as an editor does that is careful."""
    new = daemon.directory / "settings.new"
    new.write_text(text)
    new.rename(daemon.directory / "settings.toml")


def change(daemon: DaemonProcess, table: str, **values: Any) -> None:
    """Change some settings of a table in the file."""
    daemon.settings[table] = {**daemon.settings.get(table, {}), **values}
    write(daemon, to_toml(daemon.settings))


def said(daemon: DaemonProcess, message: str) -> list[dict[str, Any]]:
    return [line for line in daemon.lines() if line["message"] == message]


def gone_over(daemon: DaemonProcess, times: int) -> bool:
    return len(said(daemon, CHANGED)) == times and daemon.status()["state"] == "leading"


def pids(client: ForeignClient, *keys: str) -> dict[str, bytes]:
    """Which process answers for each key."""
    ids = {key: client.send(key) for key in keys}
    client.wait(*ids.values())
    return {key: client.answers[request_id][0].body.split(b"|")[1] for key, request_id in ids.items()}


def test_a_changed_delay_is_in_force_while_requests_go_on_and_no_worker_is_restarted(
    make_pool: MakePool, make_daemon: MakeDaemon, make_client: MakeClient
) -> None:
    pool = make_pool()
    daemon = make_daemon(pool, worker=SCRIPTED)
    client = make_client(pool)
    before = pids(client, "a", "b")
    # Given requests in hand, waiting, and for keys without a worker, all the time
    sent = [client.send("a", b"sleep:3")]
    cold = 0
    change(daemon, "pool", unbind_delay=500, overrides={"b": {"unbind_delay": 1, "stop_delay": 300}})

    def under_load() -> bool:
        nonlocal cold
        client.poll()
        if cold < 6 and len(sent) % 5 == 0:
            cold += 1
            sent.append(client.send(f"cold-{cold}"))
        sent.append(client.send("a"))
        return gone_over(daemon, 1)

    until(under_load, every=0.1, what="the changed settings in force")

    # Then each is answered, by the workers that were there
    assert {answer.status for answer in client.wait(*sent)} == {"ok"}
    assert pids(client, "a")["a"] == before["a"]
    (line,) = said(daemon, CHANGED)
    assert line["changed"] == ["pool.overrides", "pool.unbind_delay"]
    # And the new delays hold: one key's has run out
    until(lambda: (daemon.key("b") or {}).get("state") == "idle", what="the key with the short delay to be unbound")
    found = daemon.key("a")
    assert found is not None
    assert 400 < found["unbinds_in"] < 590
    # And what was unbound is bound again by its next request, for the worker that is still there
    assert pids(client, "b") == {"b": before["b"]}


def test_a_changed_limit_is_in_force_and_what_needs_a_restart_is_reported(
    make_pool: MakePool, make_daemon: MakeDaemon, make_client: MakeClient
) -> None:
    # Given a daemon that starts one group at a time, the first of which shows no life
    pool = make_pool()
    daemon = make_daemon(pool, worker=["/bin/sleep", "600"], limits={"starts_in_flight": 1, "start_hold": 600})
    client = make_client(pool)
    for key in ("a", "b", "c"):
        client.send(key)
    until(lambda: len(daemon.worker_pids()) == 1, what="the first start")
    first = daemon.worker_pids()
    # When it may start more of them
    change(daemon, "limits", starts_in_flight=3)
    # Then it does, and the first stays
    until(lambda: len(daemon.worker_pids()) == 3, what="the other starts")
    assert set(first) <= set(daemon.worker_pids())

    url = daemon.url
    change(daemon, "status", port=1)
    until(lambda: said(daemon, "a changed status address takes effect when the process restarts"))
    assert daemon.url == url
    daemon.wait_for("leading")
    assert daemon.stop() == 0


def test_a_changed_template_rolls_the_workers_of_its_pool_alone(
    make_pool: MakePool, make_daemon: MakeDaemon, make_client: MakeClient
) -> None:
    pools = [make_pool(), make_pool(name="other")]
    core, other = (make_daemon(pool, worker=SCRIPTED) for pool in pools)
    clients = [make_client(pool) for pool in pools]
    before = [pids(client, "a", "b") for client in clients]
    busy = clients[0].send("a", b"sleep:2")
    until(lambda: pools[0].depth(pools[0].names.request_queue("a")) == 1)

    change(core, "driver", template={"command": SCRIPTED, "environment": {"VERSION": "2"}})

    # Then the request in hand is answered once, by the worker that had it
    assert clients[0].wait(busy)[0].body.split(b"|")[1] == before[0]["a"]
    until(lambda: not set(before[0].values()) & set(pids(clients[0], "a", "b").values()), what="new workers")
    assert len(clients[0].answers[busy]) == 1
    # And the other pool has noticed nothing
    assert pids(clients[1], "a", "b") == before[1]
    assert said(other, CHANGED) == []


def test_wrong_settings_are_reported_once_and_the_daemon_goes_on_with_those_before(
    make_pool: MakePool, make_daemon: MakeDaemon, make_client: MakeClient, tmp_path: Path
) -> None:
    pool = make_pool()
    daemon = make_daemon(pool, worker=SCRIPTED)
    client = make_client(pool)
    before = pids(client, "a")
    good = to_toml(daemon.settings)

    rejected = partial(said, daemon, REJECTED)
    write(daemon, good.replace("unbind_delay = 600.0", 'unbind_delay = "soon"'))
    until(lambda: len(rejected()) == 1, what="the complaint")
    assert "settings.toml: pool.unbind_delay: " in rejected()[0]["reason"]
    # And a file with a credential that is not there
    missing = tmp_path / "missing.uri"
    write(daemon, good.replace(str(daemon.directory / "amqp.uri"), str(missing)))
    until(lambda: len(rejected()) == 2, what="the second complaint")
    assert str(missing) in rejected()[1]["reason"]

    assert pids(client, "a") == before
    assert daemon.status()["settings_error"] == rejected()[1]["reason"]
    assert "osrdyne_settings_rejected 1.0" in daemon.get("/metrics")
    assert daemon.sessions_ended() == 0
    assert said(daemon, CHANGED) == []

    # When what was missing comes, no other change is needed
    missing.write_text((daemon.directory / "amqp.uri").read_text())
    until(partial(gone_over, daemon, 1), what="the settings in force")
    assert pids(client, "a", "cold")["a"] == before["a"]
    assert daemon.status()["settings_error"] is None
    assert not any(password in json.dumps(daemon.lines()) for password in pool.passwords.values())


@pytest.mark.full
def test_a_daemon_that_stands_by_goes_over_too_and_the_lock_stays_with_one(
    make_pool: MakePool, make_daemon: MakeDaemon, make_client: MakeClient
) -> None:
    pool = make_pool()
    daemons = [make_daemon(pool, worker=SCRIPTED), make_daemon(pool, worker=SCRIPTED, start=False)]
    daemons[1].settings["driver"]["state_directory"] = daemons[0].settings["driver"]["state_directory"]
    daemons[1].start(ready=False)
    daemons[1].wait_for("standby")
    client = make_client(pool)
    before = pids(client, "a")

    for daemon in daemons:
        change(daemon, "limits", held_orphans_per_key=7)

    def settled() -> bool:
        states = sorted(daemon.status()["state"] for daemon in daemons)
        return states == ["leading", "standby"] and all(said(daemon, CHANGED) for daemon in daemons)

    until(settled, what="one to lead and one to stand by")
    assert pids(client, "a", "cold")["a"] == before["a"]
