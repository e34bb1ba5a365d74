"""What a stack gives out becomes files that only their owner may read, and that the daemon accepts."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from osrdyne.base.credentials import secret
from osrdyne.settings.daemon import load
from osrdyne_infra import hand_over
from osrdyne_pool.settings import Delays, PoolSettings
from osrdyne_pool.settings_file import pool_table

pytestmark = pytest.mark.fast
POOL = PoolSettings("core", "dev", orphan_ttl=90.0, overrides={"a=1,b=2": Delays(1.5, 3.0)})
ADDRESSES = {
    "client": "amqp://c:word@h:1/v",
    "daemon": "amqp://d:word@h:1/v",
    "daemon-management": "http://d:word@h:2",
    "monitor-management": "http://m:word@h:2",
}
DRIVER = '[driver]\nkind = "noop"\n'


def run(monkeypatch: pytest.MonkeyPatch, directory: Path, given: str) -> None:
    monkeypatch.setattr(sys, "argv", ["hand_over", str(directory)])
    monkeypatch.setattr(sys, "stdin", io.StringIO(given))
    hand_over.main()


def outputs(pool: PoolSettings = POOL) -> str:
    given = {"pools": {"core": pool_table(pool)}, "addresses": {"core": ADDRESSES}, "statistics_interval": 4.5}
    return json.dumps({"vhost": "v", **given})


def test_the_files_are_the_owners_only_and_nothing_secret_is_printed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(monkeypatch, tmp_path / "out", outputs())

    files = {path.name: path.read_text() for path in (tmp_path / "out/core").iterdir()}
    assert {name for name in files if name.endswith(".uri")} == {f"{role}.uri" for role in ADDRESSES}
    assert files["client.uri"] == f"{ADDRESSES['client']}\n"
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "out/core").iterdir()} == {0o600}
    assert (tmp_path / "out/core").stat().st_mode & 0o777 == 0o700
    assert "word" not in capsys.readouterr().out
    assert "word" not in files["settings.toml"]


def test_a_pool_with_jobs_has_the_addresses_of_their_database(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    databases = {"core": {"jobs": "postgresql://j:word@h/d", "jobs-owner": "postgresql://o:word@h/d"}}
    run(monkeypatch, tmp_path, json.dumps({**json.loads(outputs()), "databases": databases}))

    for name, address in databases["core"].items():
        assert (tmp_path / f"core/{name}.address").read_text() == f"{address}\n"


def test_the_daemon_reads_the_pool_as_it_was_declared(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    run(monkeypatch, tmp_path, outputs())
    settings = tmp_path / "core/settings.toml"
    settings.write_text(settings.read_text() + DRIVER)

    found = load(settings)
    assert found.pool == POOL
    broker = found.broker
    assert secret(broker.management_uri, broker.management_uri_file, "") == ADDRESSES["daemon-management"]
    assert found.broker.statistics_interval == 4.5


def test_what_a_person_added_stays_and_the_rest_is_new(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    run(monkeypatch, tmp_path, outputs())
    settings = tmp_path / "core/settings.toml"
    settings.write_text(settings.read_text() + DRIVER)

    changed = PoolSettings("core", "dev", orphan_ttl=91.0)
    run(monkeypatch, tmp_path, outputs(changed))

    assert settings.read_text().endswith(DRIVER)
    assert load(settings).pool == changed


def test_a_file_of_an_earlier_release_is_removed_and_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old, own = tmp_path / "core/daemon_management.uri", tmp_path / "core/admin.uri"
    old.parent.mkdir()
    for path in (old, own):
        path.write_text("http://d:word@h:2")

    run(monkeypatch, tmp_path, outputs())

    assert not old.exists()
    assert own.exists()
    assert f"{old} is removed" in capsys.readouterr().out


@pytest.mark.parametrize("given", ["", "{}", '{"pools": {"core": {}}, "addresses": {"core": "[secret]"}}'])
def test_outputs_that_are_not_in_the_clear_end_with_what_to_give(
    given: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with pytest.raises(SystemExit, match="--show-secrets"):
        run(monkeypatch, tmp_path, given)

    assert list(tmp_path.iterdir()) == []
