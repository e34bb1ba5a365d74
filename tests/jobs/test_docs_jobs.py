"""The code of the pages about jobs, run as it stands: a client, a worker, redo, and a transaction of the caller's."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import select

import steps
from osrdyne_jobs import Run, engine_for, states, worker
from osrdyne_jobs.client import CAST_AFTER_SECONDS
from osrdyne_jobs.database.engines import reading
from osrdyne_jobs.database.tables import leader
from osrdyne_jobs.job_types import MOST_PAYLOAD
from osrdyne_jobs.store import administration
from testbed.command_line import osrdyne
from testbed.pool import DaemonProcess, Pool
from testbed.waiting import PATIENCE_SECONDS, until
from tests.broker.conftest import make_daemon, make_pool

__all__ = ["make_daemon", "make_pool"]

PAGES = ("howto/jobs", "howto/jobs-administration", "howto/jobs-deploy", "reference/jobs", "explain/jobs")
PAGE = "\n".join(Path(steps.ROOT, f"docs/{name}.md").read_text() for name in PAGES)
COMMANDS = re.findall(r"^```sh\n((?:export|osrdyne).*?)^```", PAGE, re.MULTILINE | re.DOTALL)
PROGRAMS = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def test_the_programs_of_the_page_do_a_job_together(
    make_pool: Callable[..., Pool], make_daemon: Callable[..., DaemonProcess], tmp_path: Path
) -> None:
    client, do, own, _ = PROGRAMS
    pool, database = make_pool(), f"sqlite:///{tmp_path / 'jobs.db'}"
    (tmp_path / "do.py").write_text(do)
    make_daemon(pool, worker=[sys.executable, str(tmp_path / "do.py")], environment={"JOBS_DATABASE": database})
    environment = {"PATH": os.environ["PATH"], "JOBS_DATABASE": database, "AMQP_URI": pool.client_uri}

    def run(program: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", program],
            env=environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    assert run(client) == "registered 1\n"
    # Which has no client of the pool, so that redo casts its job
    run(own)
    redo = in_place(COMMANDS[0], tmp_path, {"client.uri": pool.client_uri, "jobs.address": database})
    with subprocess.Popen(shlex.split(redo), env={"PATH": steps.environment()["PATH"]}) as process:
        engine = engine_for(database)

        def all_done() -> bool:
            with reading(engine) as connection:
                if connection.execute(select(leader.c.holder)).first() is None:
                    return False  # redo does not listen to signals yet
                return [administration.get(connection, number).state for number in (1, 2)] == [states.DONE] * 2

        try:
            until(all_done)
        finally:
            engine.dispose()
            process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_SECONDS) == 0


def in_place(text: str, directory: Path, addresses: dict[str, str]) -> str:
    """Return commands of the page that read these addresses from files in the directory."""
    for name, address in addresses.items():
        (directory / name).write_text(address)
    return text.replace("/etc/osrdyne/core", str(directory))


def test_the_commands_of_the_page_make_show_and_change_a_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "routes.py").write_text(PROGRAMS[3])
    monkeypatch.chdir(tmp_path)
    export, *commands = in_place(COMMANDS[1], tmp_path, {"jobs.address": f"sqlite:///{tmp_path}/jobs.db"}).splitlines()
    variables = dict(word.split("=", 1) for word in shlex.split(export)[1:])
    done = [osrdyne(*shlex.split(line, comments=True)[1:], variables=variables) for line in commands]
    assert [(result.code, result.err) for result in done] == [(0, "")] * len(commands)
    ran = {shlex.split(line)[2]: result.out.decode() for line, result in zip(commands, done, strict=True)}
    assert ran["schemas"].startswith("name: rebuild-routes\n")
    assert ran["create"].startswith("job 1 is registered")
    assert 'payload: {"year": 2013}' in ran["show"]
    assert ran["delete"] == "job 1: deleted\n"


def test_the_page_names_every_command() -> None:
    known = osrdyne("jobs", "--help").out.decode().partition("Commands:")[2]
    named = {line.split()[0] for line in known.splitlines() if re.match(r"  \S", line)}

    assert len(named) > 5
    assert {line.split()[2] for line in "".join(COMMANDS).splitlines() if "jobs" in line.split()} == named


def test_the_figures_of_the_page_are_those_of_the_code() -> None:
    assert f"a lease of {worker.LEASE_SECONDS:g} seconds" in PAGE
    assert f"at most {MOST_PAYLOAD:,} bytes" in PAGE
    assert (worker.RENEWALS, CAST_AFTER_SECONDS, states.FIRST_DELAY_SECONDS, states.LONGEST_DELAY_SECONDS) == (
        4,
        10.0,
        5.0,
        600.0,
    )
    assert {"cancelled", "token", "transaction"} <= {*dir(Run), *Run.__dataclass_fields__}


def test_the_page_explains_every_state() -> None:
    table = PAGE.split("## States")[1].split("\n## ")[0]
    assert set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\| ([^|]*) \|", table, re.MULTILINE)))) == {*states.STATES}
