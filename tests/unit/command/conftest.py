"""A folder with files that the commands read, and a status page of a daemon."""

from __future__ import annotations

import importlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from osrdyne_runtime.settings_text import to_toml
from tests.unit.command.every_command import SETTINGS
from tests.unit.daemon.commands.test_output import DOCUMENT, KEY


class _Status(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(DOCUMENT | {"keys": [KEY | {"key": "Zürich"}]}).encode())

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="package", autouse=True)
def _imported() -> None:
    """Import once what takes long, for all forks."""
    for name in (
        "osrdyne.process",
        "osrdyne_jobs.http",
        "osrdyne_jobs.database.tables",
        "osrdyne_relay.http",
        "alembic.command",
        "osrdyne_pipeline.commands.report",
    ):
        importlib.import_module(name)


@pytest.fixture(autouse=True)
def _no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark would take seconds each time."""
    monkeypatch.setenv("JAVA_HOME", "/nowhere")


@pytest.fixture(scope="package")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("é")
    (made / "settings.toml").write_text(to_toml(SETTINGS))
    (made / "database").write_text(f"sqlite:///{made}/jobs.sqlite")
    (made / "away").write_text("postgresql://u:p@127.0.0.1:1/jobs")
    (made / "calls.csv").write_text("time,key\n2026-01-01T00:00:00Z,é\n")
    return made


@pytest.fixture(scope="package")
def url() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Status) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
