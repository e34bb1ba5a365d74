"""`osrdyne jobs redo` as a process: it waits for what is away at its start, casts, and ends at a signal."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import steps
from osrdyne_jobs.database.engines import engine_for, migrate
from osrdyne_runtime.settings_text import to_toml
from testbed.command_line import osrdyne
from testbed.pool import Pool
from testbed.postgres import Postgres
from testbed.waiting import PATIENCE_SECONDS, until
from tests.broker.conftest import make_pool
from tests.jobs.commands import Jobs, jobs

__all__ = ["jobs", "make_pool"]

#: Where nothing listens: the port of tcpmux.
NO_BROKER = "amqp://user:secret@127.0.0.1:1/%2F"
SOON: dict[str, Any] = {"pool": {"name": "core", "jobs": {"redo": {"interval": 0.1, "lease": 5}}}}


class Redo:
    """A process, and what it logged."""

    def __init__(self, directory: Path, url: str, broker: str) -> None:
        self._broker, self._log = directory / "broker", directory / "log"
        self.use(broker)
        settings = directory / "settings.toml"
        settings.write_text(to_toml(SOON))
        self.ready = directory / "ready"
        words = ["--settings", str(settings), "--broker-file", str(self._broker), "--json"]
        words += ["--ready-file", str(self.ready)]
        with self._log.open("w") as log:
            self.process = subprocess.Popen(
                [str(steps.BIN / "osrdyne"), "jobs", "redo", *words],
                env={"PATH": os.environ["PATH"], "OSRDYNE_JOBS_DATABASE": url},
                stderr=log,
            )

    def use(self, broker: str) -> None:
        """Put the broker's address into its file, at once."""
        new = self._broker.with_suffix(".new")
        new.write_text(broker)
        new.replace(self._broker)

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._log.read_text().splitlines(keepends=True) if line.endswith("\n")]

    def said(self, message: str) -> dict[str, Any]:
        """Wait for a line of the log."""
        return until(lambda: next((line for line in self.lines() if line["message"] == message), None), what=message)

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_SECONDS)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[str, str], Redo]]:
    started = contextlib.ExitStack()

    def run(url: str, broker: str) -> Redo:
        one = Redo(tmp_path, url, broker)
        started.callback(one.process.wait)
        started.callback(one.process.kill)
        return one

    with started:
        yield run


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_while_the_broker_is_away_it_waits_and_a_signal_ends_it(
    jobs: Jobs, start: Callable[[str, str], Redo], number: signal.Signals
) -> None:
    redo = start(jobs.url, NO_BROKER)
    reason = redo.said("the broker cannot be used; waiting for it")["reason"]

    assert "nothing listens there" in reason
    assert redo.end(number) == 0
    assert [line["message"] for line in redo.lines()] == [
        "redo started",
        "the broker cannot be used; waiting for it",
        "redo ended",
    ]
    assert "secret" not in redo._log.read_text()


def test_once_the_broker_is_there_it_leads_and_casts_what_was_missed(
    jobs: Jobs, start: Callable[[str, str], Redo], make_pool: Callable[..., Pool], tmp_path: Path
) -> None:
    pool = make_pool()
    (tmp_path / "ready").touch()
    redo = start(jobs.url, NO_BROKER)
    redo.said("the broker cannot be used; waiting for it")
    assert not redo.ready.exists()  # although an earlier process left it
    number = jobs.json("create", "plain", "r", "{}")["id"]
    jobs.json("cancel", str(number))
    jobs.json("redo", str(number))  # which makes it due at once
    redo.use(pool.client_uri)
    redo.said("redo leads")
    first = until(lambda: redo.ready.exists() and redo.ready.stat().st_mtime_ns, what="the first scan")
    until(lambda: redo.ready.stat().st_mtime_ns > first, what="another scan")

    until(lambda: pool.depth(pool.names.orphan_queue))
    assert redo.end() == 0


def test_create_casts_the_job_where_a_broker_is_named(jobs: Jobs, make_pool: Callable[..., Pool]) -> None:
    pool = make_pool()
    variables = {"OSRDYNE_CLIENT_URI": pool.client_uri, "OSRDYNE_CLIENT_POOL": "core"}
    done = jobs("create", "plain", "r", "{}", variables=variables)

    assert (done.code, done.err, done.out) == (0, "", b"job 1 is registered, and cast\n")
    until(lambda: pool.depth(pool.names.orphan_queue))


def test_a_database_without_tables_ends_it_with_what_to_do(tmp_path: Path, start: Callable[[str, str], Redo]) -> None:
    (tmp_path / "empty.db").touch()
    redo = start(f"sqlite:///{tmp_path}/empty.db", NO_BROKER)

    assert redo.process.wait(PATIENCE_SECONDS) == 2
    assert redo._log.read_text().splitlines()[-1].endswith("make them with `osrdyne jobs migrate`.")


@pytest.mark.full
def test_while_postgresql_is_away_it_waits(private_postgres: Postgres, start: Callable[[str, str], Redo]) -> None:
    private_postgres.create_database("jobs")
    url = private_postgres.url("jobs")
    engine = engine_for(url)
    migrate(engine)
    engine.dispose()
    private_postgres.stop()
    redo = start(url, NO_BROKER)
    redo.said("the database cannot be used; waiting for it")
    private_postgres.start()

    redo.said("the broker cannot be used; waiting for it")
    assert redo.end() == 0


@pytest.mark.parametrize(
    ("words", "variables", "why"),
    [
        ((), {}, "no pool is named; give --pool NAME, or the daemon's settings file by --settings"),
        (("--settings", "/nowhere.toml"), {}, "/nowhere.toml: does not exist; name the settings file"),
        (
            ("--pool", "core"),
            {},
            "name a file that holds it by --broker-file, or set OSRDYNE_CLIENT_URI",
        ),
        (("--pool", "Core"), {"OSRDYNE_CLIENT_URI": NO_BROKER}, "pool name 'Core': use lower-case letters"),
        (
            ("--pool", "core", "--ready-file", "/nowhere/ready"),
            {},
            "--ready-file /nowhere/ready: its folder is missing",
        ),
        (
            ("--pool", "core"),
            {"OSRDYNE_CLIENT_URI": "http://x"},
            "the broker URI does not start with amqp:// or amqps://",
        ),
    ],
)
def test_what_it_needs_and_has_not_is_one_line(
    jobs: Jobs, words: tuple[str, ...], variables: dict[str, str], why: str
) -> None:
    done = jobs("redo", *words, variables=variables)

    assert done.code == 2
    assert why in done.err.splitlines()[-1]


def test_settings_that_are_wrong_name_the_file_and_the_setting(jobs: Jobs, tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text('[pool]\nname = "core"\n[pool.jobs.redo]\nlease = 1\n')
    done = osrdyne("jobs", "redo", "--settings", str(file), variables={"OSRDYNE_JOBS_DATABASE": jobs.url})

    assert done.code == 2
    assert f"{file}: pool.jobs.redo.lease: must be longer than the interval of 5 s" in done.line
