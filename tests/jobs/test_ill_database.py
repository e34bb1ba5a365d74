"""Each command of the jobs ends in its time where its PostgreSQL is stopped, and says where that is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from osrdyne_jobs import JobClient, engine_for, migrate
from testbed.postgres import Postgres
from tests.unit.runtime.test_silent_peers import TYPES, WAITS, run

COMMANDS = [command for command, waits in WAITS.items() if command.startswith("jobs ")]


@contextmanager
def stopped(server: Postgres) -> Iterator[None]:
    """Stop the server and its processes by SIGSTOP."""
    assert server._keeper is not None
    processes = psutil.Process(server._keeper.pid).children(recursive=True)
    for process in processes:
        process.suspend()
    try:
        yield
    finally:
        for process in processes:
            process.resume()


@pytest.mark.full
async def test_each_command_on_a_stopped_database_ends_in_time_and_says_where_it_is(
    private_postgres: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    private_postgres.create_database("jobs")
    engine = engine_for(private_postgres.url("jobs"))
    migrate(engine)
    JobClient(engine, TYPES).submit("routes", "r", {})
    engine.dispose()
    users = {"database": "programs", "owner": "owner", "admin": private_postgres.admin}
    for name, user in users.items():
        file = tmp_path / name
        file.write_text(f"{private_postgres.url('jobs', user)}?connect_timeout=2")
        file.chmod(0o600)

    with stopped(private_postgres):
        for command in COMMANDS:
            words = WAITS[command].words.replace("at/", f"{tmp_path}/").split()
            done = await run(*command.split(), *words, timeout=WAITS[command].seconds)
            assert done.code == 2, (command, done)
            assert f"127.0.0.1:{private_postgres.port}" in done.line
            assert private_postgres.admin_password not in done.err
