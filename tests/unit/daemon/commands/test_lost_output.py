"""Every command of `osrdyne`, those of other packages included, where its output cannot be shown or written."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import typer

from osrdyne.commands.app import app, main
from osrdyne_runtime.settings_text import to_toml
from testbed import lost_output
from testbed.lost_output import CONDITIONS
from tests.unit.daemon.commands.test_output import DOCUMENT, KEY

SETTINGS = {
    "pool": {"name": "core"},
    "broker": {"amqp_uri": "amqp://u:p@127.0.0.1:1/é", "management_uri": "http://u:p@127.0.0.1:1"},
    "driver": {"kind": "noop"},
}
NO_BROKER = ("--broker", "amqp://u:p@127.0.0.1:1/v", "--json")
NO_INVENTORY = ("--pool", "core", *NO_BROKER)
#: What makes each command print something, without an engine: what it is for where that is possible, else its error.
#: `é` stands for the folder of the test, whose name is not ASCII.
WORDS: dict[str, tuple[str, ...]] = {
    "daemon": ("--check", "--settings", "é/settings.toml"),
    "call": ("é", "--pool", "core", *NO_BROKER),
    "status": ("--url", "URL"),
    "lint": ("--settings", "é/settings.toml"),
    "replay": ("--calls", "é/calls.csv", "--out", "é/events.jsonl"),
    "poison list": NO_INVENTORY,
    "poison show": ("é", *NO_INVENTORY),
    "poison replay": ("--all", "--yes", *NO_INVENTORY),
    "poison bury": ("--all", "--yes", *NO_INVENTORY),
    "bus ping": ("é", *NO_BROKER),
    "bus watch": ("é", *NO_BROKER),
    "jobs create": ("é", "é", "{}", "--types", "no:types", "--json"),
    "jobs list": ("--database-file", "é/none", "--json"),
    "jobs show": ("1", "--database-file", "é/none", "--json"),
    "jobs redo": ("1", "--database-file", "é/none", "--json"),
    "jobs cancel": ("1", "--database-file", "é/none", "--json"),
    "jobs delete": ("1", "--database-file", "é/none", "--json"),
    "jobs schemas": ("--types", "no:é", "--json"),
    "jobs migrate": ("--database-file", "é/database", "--json"),
    "jobs restored": ("--database-file", "é/none", "--json"),
    "jobs prepare-database": ("--admin-file", "é/none", "--owner-file", "é/none", "--json"),
    "jobs serve": ("--database-file", "é/none", "--json"),
    "relay serve": ("--settings", "é/none", "--json"),
    "relay token": ("--json",),
    "relay check": ("--settings", "é/none", "--json"),
    "relay redis": ("--password-file", "é/none", "--json"),
}
#: Those that are done there; the others end with an error, as JSON.
DONE = {"daemon", "status", "lint", "replay", "jobs migrate", "relay token"}
COMMANDS = [" ".join(one) for one in lost_output.leaves(typer.main.get_command(app))]


class _Status(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(DOCUMENT | {"keys": [KEY | {"key": "Zürich"}]}).encode())

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module", autouse=True)
def _imported() -> None:
    """Import once what takes long, for all forks."""
    for name in (
        "osrdyne.process",
        "osrdyne_jobs.http",
        "osrdyne_jobs.database.tables",
        "osrdyne_relay.http",
        "alembic.command",
    ):
        importlib.import_module(name)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("é")
    (made / "settings.toml").write_text(to_toml(SETTINGS))
    (made / "database").write_text(f"sqlite:///{made}/jobs.sqlite")
    (made / "calls.csv").write_text("time,key\n2026-01-01T00:00:00Z,é\n")
    return made


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Status) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def expected(condition: str, code: int) -> tuple[int, str]:
    """The exit status, and how the line on standard error begins that is about the output."""
    if condition == "full":
        return 2, "osrdyne: standard output cannot be written: No space left on device; free space there, or send it"
    return (141 if condition == "gone" else code), ""


def test_every_command_is_tried() -> None:
    assert sorted(WORDS) == sorted(COMMANDS)


@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_ends_in_good_order_where_its_output_is_lost(
    command: str, condition: str, folder: Path, url: str
) -> None:
    words = [url if one == "URL" else one.replace("é/", f"{folder}/") for one in WORDS[command]]

    done = lost_output.run(main, [*command.split(), *words], condition)

    code, line = expected(condition, 0 if command in DONE else 2)
    assert (done.code or 0) == code, done
    assert "Traceback" not in done.err
    assert line in done.err
    if condition == "ascii":
        assert done.out.isascii()
        assert done.out.strip()
        assert "--json" not in words or json.loads(done.out)
    if condition == "gone":
        assert "standard output" not in done.err


@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_the_help_of_a_command_does_so_too(command: str, condition: str) -> None:
    done = lost_output.run(main, [*command.split(), "--help"], condition)

    code, line = expected(condition, 0)
    assert (done.code or 0) == code
    assert "Traceback" not in done.err
    assert line in done.err


def test_characters_that_a_terminal_cannot_show_are_escaped(url: str) -> None:
    assert r"Z\xfcrich" in lost_output.run(main, ["status", "--url", url], "ascii").out


def test_an_error_about_the_command_line_is_escaped_too() -> None:
    assert r"No such command 'stat\xfcs'" in lost_output.run(main, ["statüs"], "ascii").err


@pytest.mark.parametrize("condition", ["full", "gone"])
def test_a_status_that_is_shown_again_and_again_ends_where_its_reader_has_gone(condition: str, url: str) -> None:
    done = lost_output.run(main, ["status", "--url", url, "--watch", "0.1"], condition)

    assert done.code == expected(condition, 0)[0]
    assert "Traceback" not in done.err


def test_standard_error_on_a_full_disk_changes_nothing_of_a_command() -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "osrdyne.cli", "status", "--url", "nowhere", "--json"],
            stdout=subprocess.PIPE,
            stderr=full,
            check=False,
        )

    assert done.returncode == 2
    assert "error" in json.loads(done.stdout)
