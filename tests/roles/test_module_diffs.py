"""What the Ansible modules say under `--diff`, called as Ansible calls them; that of the topology has its own."""

from __future__ import annotations

import getpass
import stat
from pathlib import Path
from typing import Any

import pytest

from testbed.plugins import run_module

SECRET = "p4ssw0rd"


def files(directory: Path, **more: Any) -> dict[str, Any]:
    owned = [{"name": "client.uri", "content": SECRET, "owner": getpass.getuser()}]
    return run_module("osrdyne_files", {"directory": str(directory), "files": owned, "_ansible_no_log": True, **more})


def test_a_file_of_credentials_shows_that_it_differs_and_how_its_mode_does_but_no_content(tmp_path: Path) -> None:
    file = tmp_path / "client.uri"
    header = {"before_header": str(file), "after_header": str(file)}

    made = files(tmp_path, _ansible_diff=True)
    assert made["diff"] == [{**header, "before": {"content": "none"}, "after": {"content": "as it is wanted"}}]
    assert files(tmp_path, _ansible_diff=True)["diff"] == []

    file.write_text("another")
    file.chmod(0o644)
    [found] = files(tmp_path, _ansible_diff=True, _ansible_check_mode=True)["diff"]
    assert found == {**header, "before": {"content": "another"}, "after": {"content": "as it is wanted"}}
    file.write_text(SECRET)
    [found] = files(tmp_path, _ansible_diff=True, _ansible_check_mode=True)["diff"]
    assert (found["before"], found["after"]) == ({"mode": "0644"}, {"mode": "0600"})
    assert stat.S_IMODE(file.stat().st_mode) == 0o644


def test_a_record_shows_what_it_was_and_what_it_is(tmp_path: Path) -> None:
    arguments = {"file": str(tmp_path / "core.json"), "accounts": [], "variables": {}, "_ansible_diff": True}

    first = run_module("osrdyne_made", {**arguments, "paths": ["/no/such"]})["diff"]
    second = run_module("osrdyne_made", {**arguments, "paths": ["/no/other"]})["diff"]

    assert (first["before"], "/no/such" in first["after"]) == ("", True)
    assert second["before"] == first["after"]
    assert "/no/other" in second["after"]


def test_passwords_show_their_names_alone(tmp_path: Path) -> None:
    arguments = {"directory": str(tmp_path), "_ansible_diff": True}
    run_module("osrdyne_passwords", {**arguments, "names": ["core-client"]})

    done = run_module("osrdyne_passwords", {**arguments, "names": ["core-client", "core-daemon"]})

    assert (done["diff"]["before"], done["diff"]["after"]) == ("core-client\n", "core-client\ncore-daemon\n")
    assert not [word for word in done["passwords"].values() if word in str(done["diff"])]


def test_packages_show_which_are_installed() -> None:
    # One is on every Debian; and without apt, neither is installed.
    names = ["no-such-package-of-osrdyne", "base-files"]

    done = run_module("osrdyne_packages", {"name": names, "_ansible_check_mode": True, "_ansible_diff": True})

    assert done["diff"]["before"] in ("", "base-files\n")
    assert done["diff"]["after"] == "base-files\nno-such-package-of-osrdyne\n"


@pytest.mark.parametrize("module", ["osrdyne_files", "osrdyne_made", "osrdyne_passwords", "osrdyne_packages"])
def test_no_module_shows_a_difference_that_was_not_asked_for(module: str, tmp_path: Path) -> None:
    arguments: dict[str, dict[str, Any]] = {
        "osrdyne_files": {"directory": str(tmp_path), "files": []},
        "osrdyne_made": {"file": str(tmp_path / "a"), "paths": [], "accounts": [], "variables": {}},
        "osrdyne_passwords": {"directory": str(tmp_path), "names": ["a"]},
        "osrdyne_packages": {"name": [], "install": False, "_ansible_check_mode": True},
    }
    assert "diff" not in run_module(module, arguments[module])
