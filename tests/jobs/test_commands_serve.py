"""`osrdyne jobs serve` as a process: it logs its address, answers who knows the token, and ends at a signal."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import steps
from osrdyne_jobs import engine_for, migrate
from testbed.command_line import osrdyne
from testbed.pool import Pool
from testbed.waiting import PATIENCE_SECONDS, until
from tests.broker.conftest import make_pool
from tests.jobs.administration import TOKEN, Administration
from tests.jobs.commands import TYPES_AT
from tests.jobs.test_docs_jobs import PAGE

__all__ = ["make_pool"]

# Where nothing listens: the port of tcpmux.
AWAY = "amqp://user:secret@127.0.0.1:1/%2F"


class ServeProcess:
    """The process, what it logged, and a client of it."""

    def __init__(self, words: Sequence[str], log: Path, **variables: str) -> None:
        self._log = log
        with log.open("w") as stderr:
            self.process = subprocess.Popen(
                [str(steps.BIN / "osrdyne"), "jobs", "serve", "--json", *words],
                cwd=steps.ROOT,
                env={"PATH": os.environ["PATH"], **variables},
                stderr=stderr,
            )

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._log.read_text().splitlines(keepends=True) if line.endswith("\n")]

    def client(self, token: str | None) -> Administration:
        def address() -> str | None:
            assert self.process.poll() is None, self._log.read_text()
            return next((line["address"] for line in self.lines() if "address" in line), None)

        return Administration(until(address), token)

    def end(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE_SECONDS)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., ServeProcess]]:
    started = contextlib.ExitStack()
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    engine = engine_for(url)
    migrate(engine)
    engine.dispose()

    def served(*words: str, **variables: str) -> ServeProcess:
        given = {"OSRDYNE_JOBS_DATABASE": url, "OSRDYNE_JOBS_TYPES": TYPES_AT, **variables}
        one = ServeProcess(words, tmp_path / "log", **given)
        started.callback(one.process.wait)
        started.callback(one.process.kill)
        return one

    with started:
        yield served


JOB = {"type": "region", "resource": "r", "payload": {"year": 2013}}


def test_the_command_of_the_page_serves_and_ends_at_a_signal(
    start: Callable[..., ServeProcess], tmp_path: Path
) -> None:
    (line,) = [line for line in PAGE.splitlines() if line.startswith("osrdyne jobs serve")]
    (tmp_path / "jobs.token").write_text(f"{TOKEN}\n")
    words = shlex.split(line.replace("/etc/osrdyne/core", str(tmp_path)).replace("8043", "0"))[3:]
    served = start(*words)
    client = served.client(TOKEN)
    assert client.ask("GET", "/api/jobs", authorization="").status == 401
    assert client.ask("POST", "/api/jobs", JOB).status == 201
    assert [schema["name"] for schema in client.get("/api/jobs/schemas")] == ["plain", "region"]
    assert served.end() == 0
    assert [line["message"] for line in served.lines()] == ["the administration of jobs is served"]


def test_the_variable_may_hold_the_token_and_none_is_needed_on_loopback(start: Callable[..., ServeProcess]) -> None:
    guarded = start("--port", "0", OSRDYNE_JOBS_TOKEN=TOKEN)
    assert guarded.client(None).ask("GET", "/api/jobs").status == 401
    assert guarded.client(TOKEN).ask("GET", "/api/jobs").status == 200
    guarded.end()
    assert start("--port", "0").client(None).ask("GET", "/api/jobs").status == 200


def test_where_the_broker_is_away_it_serves_and_leaves_casts_to_redo(start: Callable[..., ServeProcess]) -> None:
    served = start("--port", "0", "--pool", "core", OSRDYNE_CLIENT_URI=AWAY)
    assert served.client(None).ask("POST", "/api/jobs", JOB).status == 201
    assert "redo casts what is created here" in served.lines()[0]["message"]
    assert "secret" not in json.dumps(served.lines())


def test_a_broker_that_comes_later_gets_the_jobs_that_are_created_from_then_on(
    start: Callable[..., ServeProcess], tmp_path: Path, make_pool: Callable[..., Pool]
) -> None:
    pool, file = make_pool(), tmp_path / "client.uri"
    file.write_text(AWAY)
    served = start("--port", "0", "--pool", pool.names.pool, "--broker-file", str(file))
    client = served.client(None)
    assert client.ask("POST", "/api/jobs", JOB).status == 201
    # When the address is one at which a broker answers
    file.write_text(pool.client_uri)
    until(lambda: any("the broker can be used again" in line["message"] for line in served.lines()), what="the broker")
    assert client.ask("POST", "/api/jobs", JOB).status == 201
    # Then only the second job is cast; no worker group of its resource runs
    until(lambda: pool.depth(pool.names.orphan_queue) == 1, what="the cast")
    assert served.end() == 0


@pytest.mark.parametrize(
    "words, variables, reason",
    [
        (["--host", "0.0.0.0"], {}, "0.0.0.0 can be reached from other machines: set a token"),
        ([], {"OSRDYNE_JOBS_TOKEN": ""}, "a token has at least 16 characters"),
        ([], {"OSRDYNE_JOBS_TOKEN": "short"}, "a token has at least 16 characters"),
        (["--token-file", "no-such-file"], {}, "--token-file"),
        (["--types", "no_such_module:TYPES"], {}, "no_such_module"),
        ([], {"OSRDYNE_CLIENT_URI": AWAY}, "give --pool NAME"),
    ],
)
def test_what_cannot_be_served_is_one_line(
    tmp_path: Path, words: list[str], variables: dict[str, str], reason: str
) -> None:
    (tmp_path / "jobs.db").touch()
    database = {"OSRDYNE_JOBS_DATABASE": f"sqlite:///{tmp_path / 'jobs.db'}"}
    done = osrdyne("jobs", "serve", "--port", "0", *words, variables=database | variables)
    assert done.code == 2
    assert reason in done.err
    assert done.err.count("\n") == 1
