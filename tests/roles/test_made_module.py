"""The Ansible module osrdyne_made, called as Ansible calls it."""

from __future__ import annotations

import getpass
import json
from pathlib import Path
from typing import Any

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
