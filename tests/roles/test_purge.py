"""`make purge` after a real `make up`, on a broker that others use too."""

from __future__ import annotations

import dataclasses
import json
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

import purge
import steps
from osrdyne_pool.topology import Users
from testbed.broker import Broker
from tests.roles.local_setup import LocalSetup


@pytest.fixture
def setup(one_broker: Broker, tmp_path: Path) -> Iterator[LocalSetup]:
    name = f"purge-{secrets.token_hex(4)}"
    folders = {
        f"osrdyne_relay_{kind}_directory": str(tmp_path / f"pool/relay-{kind}") for kind in ("configuration", "state")
    }
    variables = {
        "osrdyne_broker_management": one_broker.management_url,
        "osrdyne_instance": name,
        # Nothing outside of the test's folder.
        "osrdyne_makes": [str(tmp_path / "pool" / part) for part in ("configuration", "state", "relay-state")],
        **folders,
    }
    made = LocalSetup(tmp_path / "pool", os.environ, broker=one_broker.amqp_uri(vhost=name), variables=variables)
    yield made
    made.close()
    for user in {*dataclasses.astuple(Users.of("airports", name))} & {
        user["name"] for user in one_broker.management.get("users")
    }:
        one_broker.management.delete("users", user)
    one_broker.management.delete("vhosts", name)


@pytest.mark.full
def test_a_pool_is_stopped_and_removed_and_what_was_there_before_stays(
    setup: LocalSetup, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    # Given a pool with a worker, made beside a folder that was there
    kept = setup.directory / "relay-state/file"
    kept.parent.mkdir()
    kept.touch()
    setup.play("dev")
    assert setup.call("LAX", b"a").body == b"A"
    [record] = (setup.directory / "made").iterdir()
    said = json.loads(record.read_text())
    assert said["osrdyne_made"]["paths"] == [str(setup.directory / name) for name in ("configuration", "state")]
    # Without systemd, as the set-up is.
    record.write_text(json.dumps(said | json.loads((setup.directory / "variables.json").read_text())))
    monkeypatch.setattr(purge, "RECORDS", record.parent)
    monkeypatch.setattr(purge, "CACHE", setup.directory / "none")
    monkeypatch.setattr(steps, "VENV", setup.directory / "none")
    monkeypatch.setenv("DPKG_ROOT", str(setup.directory / "root"))
    monkeypatch.setattr("sys.argv", ["purge.py", "--confirm=yes"])

    purge.main()

    assert "this stays: on your broker 127.0.0.1 the virtual host purge-" in capfd.readouterr().out
    assert sorted(path.name for path in setup.directory.iterdir()) == ["relay-state", "variables.json"]
    assert kept.exists()
    here = str(setup.directory)
    assert not [
        process.pid for process in psutil.process_iter(["cmdline"]) if here in " ".join(process.info["cmdline"] or ())
    ]
