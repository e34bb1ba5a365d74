"""`osrdyne pipeline run`: a whole run from the stream of a real broker to the page, refused, ended and repeated."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from osrdyne_pipeline.batches import committed
from osrdyne_pipeline.commands import PIPELINE
from osrdyne_pipeline.lake import Lake
from testbed.pool import Pool
from tests.pipeline.small_history import EVENTS, REQUESTS, record, rows

#: Within a run: the process is killed when it begins to make the tables, as a full machine may do.
KILLED = """
import os, signal, sys
from osrdyne_pipeline.commands import PIPELINE, tables
tables.make = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
PIPELINE(sys.argv[1:])
"""


def words(lake: Path, *more: str | Path) -> list[str]:
    return ["run", "--pool", "core", "--lake", str(lake), *map(str, more)]


def run(lake: Path, *more: str | Path) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own, with the environment of a timer."""
    command = [sys.executable, "-m", "osrdyne.cli", "pipeline", *words(lake, *more)]
    environment = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)


def done(lake: Path, *more: str | Path) -> dict[str, Any]:
    """Run the command, which succeeds; its JSON document."""
    found = run(lake, "--json", *more)
    assert found.returncode == 0, found.stderr
    document: dict[str, Any] = json.loads(found.stdout)
    return document


@pytest.mark.full
def test_a_run_makes_the_page_of_new_events_and_the_next_one_counts_none_twice(
    stream_pool: Pool, uri_file: Path, tmp_path: Path
) -> None:
    settings, page = tmp_path / "pipeline.toml", tmp_path / "page/report.html"
    settings.write_text('[pool]\nname = "core"\nunbind_delay = 30\nstop_delay = 30\n')
    given = ("--uri-file", uri_file, "--settings", settings, "--output", page)

    first = done(tmp_path / "lake", *given)

    assert first["ingest"]["events"] == EVENTS
    assert first["tables"]["rows"]["silver/requests"] == REQUESTS
    assert first["recommend"]["recommended"] is False
    assert first["report"]["report"] == str(page)
    before = page.stat().st_ino

    said = run(tmp_path / "lake", *given)
    assert said.returncode == 0, said.stderr
    assert "ingest: 0 new events, 0 rejects" in said.stdout
    assert f"tables: {REQUESTS} requests of {EVENTS} events" in said.stdout
    assert "recommend: no change (" in said.stdout
    # Another file took its place: a reader has the old page or the new one.
    assert page.stat().st_ino != before

    record(stream_pool, ({**row, "event_id": f"{number:032d}"} for number, row in enumerate(rows(), 500)))
    assert done(tmp_path / "lake", *given)["ingest"]["events"] == EVENTS


@pytest.mark.full
def test_a_run_that_was_killed_is_repeated_without_loss_and_without_a_second_count(
    uri_file: Path, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    killed = subprocess.run([sys.executable, "-c", KILLED, *words(lake, "--uri-file", uri_file)], check=False)
    assert killed.returncode == -9
    assert [batch.events for batch in committed(Lake(lake, "core"))] == [EVENTS]

    after = done(lake, "--uri-file", uri_file)

    assert after["ingest"]["events"] == 0
    assert after["tables"]["rows"]["bronze"] == EVENTS
    assert after["tables"]["rows"]["silver/requests"] == REQUESTS


@pytest.mark.full
def test_a_run_says_why_it_rejects_events(uri_file: Path, stream_pool: Pool, tmp_path: Path) -> None:
    record(stream_pool, [{"key": "LAX", "event": event} for event in ("alive", "started", "no such event")])

    said = run(tmp_path / "lake", "--uri-file", uri_file)

    assert said.returncode == 0, said.stderr
    assert f"ingest: {EVENTS} new events, 3 rejects (no_time: 2, unknown_event: 1)\n" in said.stdout


@pytest.mark.full
def test_a_stream_without_events_is_not_an_error(stream_pool: Pool, tmp_path: Path) -> None:
    file = tmp_path / "monitor.uri"
    file.write_text(stream_pool.uri(stream_pool.users.monitor))

    found = run(tmp_path / "lake", "--uri-file", file)

    assert found.returncode == 0, found.stderr
    assert "the stream of core has no events yet" in found.stdout


@pytest.mark.full
def test_a_step_that_fails_is_named_and_what_was_done_before_is_reported(uri_file: Path, tmp_path: Path) -> None:
    settings = tmp_path / "pipeline.toml"
    settings.write_text('[pool]\nname = "another"\n')

    found = run(tmp_path / "lake", "--json", "--uri-file", uri_file, "--settings", settings)

    assert found.returncode == 2
    document = json.loads(found.stdout)
    assert document["ingest"]["events"] == EVENTS
    assert document["tables"]["rows"]["bronze"] == EVENTS
    assert "report" not in document
    assert document["error"].startswith("recommend: ")
    assert "another" in found.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    "place, engine, said",
    [
        ("lake", ("--engine", "duckdb", "--master", "local[2]"), "give one of both"),
        ("s3://bucket/lake", ("--engine", "spark"), "is in an object store, where DuckDB makes the tables"),
    ],
)
def test_an_engine_that_cannot_make_the_tables_is_refused_before_anything_is_read(
    place: str, engine: tuple[str, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    found = CliRunner().invoke(PIPELINE, words(Path(place), "--uri-file", "none", *engine))

    assert found.exit_code == 2
    assert said in found.stderr
    assert "ingest" not in found.stderr


def test_two_runs_at_once_are_refused_and_the_second_names_the_first(tmp_path: Path) -> None:
    with Lake(tmp_path / "lake", "core").only_writer("run"):
        found = run(tmp_path / "lake", "--uri-file", tmp_path / "no.uri")

    assert found.returncode == 2
    [line] = found.stderr.splitlines()
    assert "another run (process " in line
    assert "wait for it" in line


@pytest.mark.parametrize("on_sigint", [signal.SIG_DFL, signal.SIG_IGN], ids=["", "in the background of a script"])
def test_a_run_that_takes_too_long_ends_and_says_in_which_step(tmp_path: Path, on_sigint: signal.Handlers) -> None:
    file = tmp_path / "monitor.uri"
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        file.write_text(f"amqp://user:word@127.0.0.1:{silent.getsockname()[1]}/core")
        before = signal.signal(signal.SIGINT, on_sigint)  # the command inherits it
        try:
            found = run(tmp_path / "lake", "--uri-file", file, "--time-limit", "1", "--json")
        finally:
            signal.signal(signal.SIGINT, before)

    assert found.returncode == 2
    assert json.loads(found.stdout)["error"].startswith("ingest: not done within 1, and ended; the next run goes on")
    # And the lake is free for the next one
    with Lake(tmp_path / "lake", "core").only_writer("run"):
        pass


def test_an_apply_without_a_file_and_a_time_limit_of_nothing_are_one_line(tmp_path: Path) -> None:
    for more, said in ((("--apply",), "give --settings"), (("--time-limit", "0"), "longer than 0 seconds")):
        found = run(tmp_path / "lake", *more)
        assert found.returncode == 2
        [line] = found.stderr.splitlines()
        assert said in line
