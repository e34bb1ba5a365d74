"""`osrdyne daemon --check` refuses what opening the driver refuses, and makes nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from osrdyne_runtime.settings_text import to_toml
from testbed.command_line import CommandResult, osrdyne

URI = "amqp://u:p@127.0.0.1:1/v"


def check(folder: Path, driver: dict[str, Any]) -> CommandResult:
    broker = {"amqp_uri": URI, "management_uri": "http://u:p@127.0.0.1:1"}
    (folder / "settings.toml").write_text(to_toml({"pool": {"name": "core"}, "broker": broker, "driver": driver}))
    return osrdyne("daemon", "--settings", str(folder / "settings.toml"), "--check")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a file where a directory is wanted, one that others may write to, and a credential of its own."""
    (tmp_path / "file").touch()
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "uri").mkdir()
    (tmp_path / "uri/uri").write_text(URI)
    (tmp_path / "wrong.toml").write_text("Image = 5")
    (tmp_path / "right.toml").write_text('Image = "core:1"')
    return tmp_path


def subprocess_driver(folder: Path, state: str, **template: Any) -> dict[str, Any]:
    command = {"command": ["/bin/true"], **template}
    return {"kind": "subprocess", "worker_amqp_uri": URI, "state_directory": str(folder / state), "template": command}


def docker_driver(folder: Path, template: str) -> dict[str, Any]:
    file = str(folder / template)
    return {"kind": "docker", "template_file": file, "worker_amqp_uri_file": str(folder / "uri/uri")}


def test_what_opening_the_driver_refuses_is_refused(folder: Path) -> None:
    kubernetes = {"kind": "kubernetes", "template_directory": str(folder), "worker_secret": "s"}
    systemd = {"kind": "systemd", "unit": "w@.service", "worker_amqp_uri": URI, "manager": "user"}
    wrong = [
        (subprocess_driver(folder, "file"), "is not a directory"),
        (subprocess_driver(folder, "file/below"), "is not a directory"),
        (subprocess_driver(folder, "open"), "must be ours alone"),
        (subprocess_driver(folder, "new", log_directory=str(folder / "file")), "is not a directory"),
        ({**systemd, "environment_directory": str(folder / "open")}, "must be ours alone"),
        (docker_driver(folder, "none.toml"), "none.toml: cannot be read"),
        (docker_driver(folder, "wrong.toml"), "Image: is missing"),
        (kubernetes, "deployment.yaml cannot be read"),
    ]
    for driver, words in wrong:
        done = check(folder, driver)
        assert (done.code, done.out) == (2, b""), driver
        assert words in done.line


def test_what_is_right_is_said_to_be_right_and_nothing_is_made(folder: Path) -> None:
    for driver in (
        {"kind": "noop"},
        subprocess_driver(folder, "new/below", log_directory=str(folder / "logs")),
        docker_driver(folder, "right.toml"),
    ):
        done = check(folder, driver)
        assert done.code == 0, done
        assert done.out.endswith(b"settings are right\n")

    assert not (folder / "new").exists()
    assert not (folder / "logs").exists()
