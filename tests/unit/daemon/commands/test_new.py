"""`osrdyne new`: what it writes is sound as it is, and nothing that is there is written over."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import steps
from osrdyne.settings.daemon import load
from testbed.command_line import osrdyne

ADDRESS = {"OSRDYNE_BROKER": "amqp://u:p%2F@host:5673/v"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a pool `maps` was made."""
    monkeypatch.chdir(tmp_path)
    done = osrdyne("new", "maps", variables=ADDRESS)
    assert done.code == 0, done
    return tmp_path / "maps"


def test_what_is_written_passes_its_own_test_and_ruff(folder: Path) -> None:
    run = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "/dev/null", "--rootdir=."]
    tested = subprocess.run(run, cwd=folder, capture_output=True, text=True, check=False)
    assert tested.returncode == 0, tested
    for words in (["check"], ["format", "--check"]):
        ruff = [str(steps.BIN / "ruff"), *words, "--isolated", "--no-cache", "."]
        subprocess.run(ruff, cwd=folder, check=True, capture_output=True)


def test_the_settings_name_the_pool_and_files_with_addresses_that_only_their_owner_may_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    chosen = load(Path("settings.toml"))

    assert chosen.pool.name == "maps"
    assert '"maps"' in (folder / "client.py").read_text()
    assert Path(str(chosen.broker.amqp_uri_file)).read_text() == "amqp://u:p%2F@host:5673/v\n"
    assert Path(str(chosen.broker.management_uri_file)).read_text() == "http://u:p%2F@host:15672\n"
    assert {file.stat().st_mode & 0o777 for file in folder.glob("*.uri")} == {0o600}
    assert {"broker.uri", "management.uri", "state/"} == set((folder / ".gitignore").read_text().split())


def test_what_was_written_can_be_had_as_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    written = json.loads(osrdyne("new", "maps", "--json", variables=ADDRESS).out)

    assert written["folder"] == "maps"
    assert {file.name for file in (tmp_path / "maps").iterdir()} == {*written["files"]}


def test_a_folder_that_is_there_is_not_written_over(folder: Path) -> None:
    (folder / "worker.py").write_text("mine")

    again = osrdyne("new", "maps", variables=ADDRESS)

    assert again.code == 2
    assert again.line == f"osrdyne: {folder} is there already; name another pool, or remove it"
    assert (folder / "worker.py").read_text() == "mine"


@pytest.mark.parametrize(
    ("name", "address", "said"),
    [
        ("Maps", "amqp://host", "pool name 'Maps': use lower-case letters"),
        ("../maps", "amqp://host", "pool name '../maps': use lower-case letters"),
        ("maps", "http://host", "the broker URI does not start with amqp:// or amqps://"),
    ],
)
def test_a_name_or_an_address_that_cannot_be_used_is_one_line_and_makes_nothing(
    name: str, address: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    refused = osrdyne("new", name, variables={"OSRDYNE_BROKER": address})

    assert refused.code == 2
    assert said in refused.line
    assert list(tmp_path.iterdir()) == []


def test_dev_without_a_worker_says_how_to_make_one(tmp_path: Path) -> None:
    refused = osrdyne("dev", str(tmp_path / "worker.py"))

    assert refused.code == 2
    assert refused.line.endswith("name the worker's program, or make one by `osrdyne new NAME`")
