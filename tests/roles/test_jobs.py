"""A pool with jobs on this machine: `dev.yml` brings database and redo, on SQLite or a named PostgreSQL."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from osrdyne_client import Client
from osrdyne_jobs import JobClient, JobType
from osrdyne_protocol.names import DatabaseNames
from testbed.broker import Broker
from testbed.postgres import Postgres, quoted
from testbed.waiting import until
from tests.roles.local_setup import LocalSetup, changed

pytestmark = pytest.mark.full

PROJECT = Path(__file__).parents[2]
SCRIPTED = JobType("scripted", payload=dict[str, float])
#: Of the administrator: each has a meaning in addresses, shells, templates or YAML.
AWKWARD = "a:b/c@d%e+f?g#h&i=j k'l\"m{{p}}"


@pytest.fixture
def make(brokers: Callable[[str], Broker], tmp_path: Path) -> Iterator[Callable[..., LocalSetup]]:
    """Makes a set-up on the run's broker, whose worker does jobs of the type `scripted`."""
    broker = brokers("4.3")
    vhost = f"jobs-{os.getpid()}"
    made: list[LocalSetup] = []

    def one(**variables: Any) -> LocalSetup:
        # Short, so that a job which is not cast by its client is found soon.
        redo = {"interval": 0.5, "lease": 5}
        given = {
            "osrdyne_pool": {"name": "airports", "instance": vhost, "jobs": {"redo": redo}},
            "osrdyne_broker_management": broker.management_url,
            "osrdyne_worker_command": [sys.executable, "-m", "testbed.job_worker"],
            "osrdyne_worker_directory": str(PROJECT),
            "osrdyne_worker_environment": {"JOBS_RUNS": str(tmp_path / "runs")},
            **variables,
        }
        address = f"amqp://{broker.admin}:{broker.admin_password}@127.0.0.1:{broker.amqp_port}/{vhost}"
        made.append(LocalSetup(tmp_path / "pool", os.environ, broker=address, variables=given))
        return made[-1]

    yield one
    for setup in made:
        setup.close()
    for user in broker.management.get("users"):
        if user["name"].endswith(f".{vhost}"):
            broker.management.delete("users", user["name"])
    if vhost in {vhost["name"] for vhost in broker.management.get("vhosts")}:
        broker.management.delete("vhosts", vhost)


def do_jobs(setup: LocalSetup) -> None:
    """Have one job cast by its client, and one found by redo."""
    address = setup.text("jobs.address")
    with (
        Client(setup.text("client.uri"), "airports") as client,
        JobClient(address, [SCRIPTED], client) as caster,
        JobClient(address, [SCRIPTED]) as forgetful,
    ):
        numbers = [jobs.submit("scripted", "JFK", {}).id for jobs in (caster, forgetful)]
        until(lambda: all(caster.get(number).state == "done" for number in numbers), what="both jobs done")


def redo_runs(setup: LocalSetup) -> bool:
    file = setup.directory / "state/redo.pid"
    return file.exists() and Path(f"/proc/{file.read_text().strip()}").exists()


def test_jobs_are_done_on_sqlite_and_a_second_run_changes_nothing(make: Callable[..., LocalSetup]) -> None:
    setup = make()
    setup.play("dev")

    do_jobs(setup)
    assert setup.text("jobs.address") == f"sqlite:///{setup.directory}/state/jobs.db"
    assert changed(setup.play("dev")) == 0
    # And what changes in the settings restarts redo
    before = (setup.directory / "state/redo.pid").read_text()
    setup.change(osrdyne_pool={**setup.variables["osrdyne_pool"], "jobs": {}})
    setup.play("dev")
    assert (setup.directory / "state/redo.pid").read_text() != before
    assert redo_runs(setup)
    # And `down` ends it, and keeps the jobs
    setup.play("down")
    assert not redo_runs(setup)
    assert (setup.directory / "state/jobs.db").exists()


@pytest.fixture
def server() -> Iterator[Postgres]:
    with Postgres() as own:
        word = AWKWARD.replace("'", "''")
        own.psql(f"CREATE ROLE {quoted(AWKWARD)} LOGIN CREATEDB CREATEROLE PASSWORD '{word}'")
        yield own


def test_jobs_are_done_on_a_named_postgresql_and_a_password_can_be_changed(
    make: Callable[..., LocalSetup], server: Postgres
) -> None:
    admin = server.url("postgres", AWKWARD, AWKWARD).replace("+psycopg", "")
    setup = make(osrdyne_jobs_database=admin)
    first = setup.play("dev", "-vvv")

    do_jobs(setup)
    names = DatabaseNames.of("airports", setup.variables["osrdyne_pool"]["instance"])
    passwords = setup.directory / "configuration/passwords"
    secret = {name: (passwords / f"{name}.password").read_text() for name in (names.owner, names.database)}
    assert changed(setup.play("dev")) == 0
    for file, mode in {
        "jobs.address": 0o600,
        "jobs-owner.address": 0o600,
        "redo.toml": 0o600,
        "redo.uri": 0o600,
    }.items():
        assert (setup.directory / "configuration" / file).stat().st_mode & 0o777 == mode
    # And no password is shown, or kept where it need not be
    written = "".join(path.read_text(errors="replace") for path in (setup.directory / "state").glob("redo.*"))
    for shown in (
        first,
        written,
        *(path.read_bytes().decode(errors="replace") for path in Path("/proc").glob("[0-9]*/cmdline")),
    ):
        assert not any(word in shown for word in secret.values())
    configured = "".join(file.read_text() for file in (setup.directory / "configuration").rglob("*") if file.is_file())
    assert admin.partition("@127")[0] not in configured + first
    # When the programs' password is changed, redo goes on with the new one
    (passwords / f"{names.database}.password").unlink()
    setup.play("dev")
    assert secret[names.database] not in setup.text("jobs.address")
    do_jobs(setup)
    setup.play("down")
    assert not redo_runs(setup)


def test_a_server_that_refuses_is_named_without_a_password(make: Callable[..., LocalSetup]) -> None:
    setup = make(osrdyne_jobs_database="postgresql://admin:s3cret-word@127.0.0.1:1/postgres")
    refused = setup.attempt("dev")

    assert refused.returncode
    assert "cannot be used as user admin: connection failed" in refused.stdout, refused.stdout[-3000:]
    assert "s3cret-word" not in refused.stdout
