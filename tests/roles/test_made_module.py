"""The Ansible module osrdyne_made, called as Ansible calls it."""

from __future__ import annotations

import getpass
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

import steps
from testbed.plugins import run_module


def record(folder: Path, *paths: str, check: bool = False, **variables: str) -> dict[str, Any]:
    """What the module returns."""
    arguments = {
        "file": str(folder / "made/core.json"),
        "paths": [str(folder / path) for path in paths],
        "accounts": [getpass.getuser(), "no-such-account"],
        "variables": variables,
        "_ansible_check_mode": check,
    }
    return run_module("osrdyne_made", arguments)


def test_what_was_there_before_is_not_recorded_and_what_is_made_stays_recorded(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()

    first = record(tmp_path, "theirs", "ours", vhost="v")
    (tmp_path / "ours").mkdir()
    second = record(tmp_path, "theirs", "ours", vhost="v")

    made = {"paths": [str(tmp_path / "ours")], "accounts": ["no-such-account"]}
    assert (first["changed"], first["made"]) == (True, made)
    assert (second["changed"], second["made"]) == (False, made)
    assert json.loads((tmp_path / "made/core.json").read_text()) == {"vhost": "v", "osrdyne_made": made}


def test_a_play_that_makes_more_adds_to_the_record_and_renews_the_variables(tmp_path: Path) -> None:
    record(tmp_path, "a", vhost="v")

    more = record(tmp_path, "b", vhost="w")

    assert more["made"]["paths"] == [str(tmp_path / name) for name in "ab"]
    assert json.loads((tmp_path / "made/core.json").read_text())["vhost"] == "w"


def test_a_rehearsal_records_nothing(tmp_path: Path) -> None:
    assert record(tmp_path, "a", check=True)["changed"] is True
    assert not (tmp_path / "made").exists()


def test_others_can_enter_the_folder_of_records_whatever_the_umask_of_who_runs_the_play(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        record(tmp_path / "osrdyne", "a")
    finally:
        os.umask(before)

    assert (tmp_path / "osrdyne").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "osrdyne/made").stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize(
    "given, made",
    [
        ({"osrdyne_broker": "amqp://a:b@broker.example/v"}, {"pool"}),
        ({"osrdyne_broker": ""}, {"pool", "broker"}),
        (
            {"osrdyne_broker": "", "osrdyne_relay_clients": {"a": {}}, "osrdyne_pool": {"name": "p", "jobs": {}}},
            {"pool", "broker", "relay", "jobs"},
        ),
    ],
    ids=["named broker", "broker of its own", "relay and jobs"],
)
def test_a_play_records_only_what_it_makes(given: dict[str, Any], made: set[str]) -> None:
    done = subprocess.run(
        [
            *("ansible", "localhost", "-m", "debug"),
            *(f"-e@{file}" for file in ("roles/osrdyne/defaults/main.yml", "roles/osrdyne/vars/main.yml")),
            *("-e@playbooks/vars/dev.yml", "-e", json.dumps(given)),
            *("-a", "msg={{ [osrdyne_makes, osrdyne_makes_for, osrdyne_makes_accounts] | to_json }}"),
        ],
        cwd=steps.ROOT,
        env=steps.environment(ANSIBLE_STDOUT_CALLBACK="json", ANSIBLE_LOAD_CALLBACK_PLUGINS="1", LC_ALL="C.UTF-8"),
        check=True,
        capture_output=True,
        text=True,
    )
    said = json.loads(done.stdout)["plays"][0]["tasks"][0]["hosts"]["localhost"]["msg"]
    paths, by_part, accounts = json.loads(said) if isinstance(said, str) else said

    assert set(paths) == {path for part in made for path in by_part[part]}
    assert ("osrdyne-rabbitmq" in accounts) == ("broker" in made)
