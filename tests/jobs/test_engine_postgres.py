"""The tests' own PostgreSQL: what the other tests of this folder stand on."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
import sqlalchemy

from testbed.postgres import MEMORY_LINE, Postgres, PostgresFailed
from testbed.waiting import until

FROM_ANOTHER_PROCESS = """
import sys
from testbed.postgres import Postgres

server = Postgres()
server.start()
print(server.directory, flush=True)
sys.stdin.read()
"""

WORKS_FOR_TEN_MINUTES = """
import sys
import sqlalchemy

with sqlalchemy.create_engine(sys.argv[1]).connect() as connection:
    connection.execute(sqlalchemy.text("SELECT pg_sleep(600)"))
"""


def processes_in(directory: Path) -> list[psutil.Process]:
    """The processes of a server: they work in its directory."""
    return [
        process for process in psutil.process_iter(["cwd"]) if (process.info["cwd"] or "").startswith(str(directory))
    ]


def segment(server: Postgres) -> str:
    """The number of its segment of shared memory."""
    return (server.directory / "data/postmaster.pid").read_text().splitlines()[MEMORY_LINE].split()[1]


def segments() -> set[str]:
    """The numbers of all such segments of this machine."""
    return {line.split()[1] for line in Path("/proc/sysvipc/shm").read_text().splitlines()[1:]}


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_a_server_answers_who_knows_the_password_on_loopback_only(postgres: Postgres) -> None:
    assert postgres.psql("SELECT 6 * 7, 'x'") == "42|x"
    assert postgres.psql("SHOW listen_addresses") == "127.0.0.1"
    assert postgres.psql("SHOW unix_socket_directories") == ""
    with pytest.raises(PostgresFailed, match="password authentication failed"):
        postgres.psql("SELECT 1", password="wrong")


def test_what_psql_refuses_is_an_error_with_its_reason(postgres: Postgres) -> None:
    with pytest.raises(PostgresFailed, match='relation "nowhere" does not exist'):
        postgres.psql("SELECT * FROM nowhere")


def test_a_database_is_empty_and_takes_and_gives_rows(database_url: str) -> None:
    engine = sqlalchemy.create_engine(database_url)
    try:
        assert sqlalchemy.inspect(engine).get_table_names() == []
        with engine.begin() as connection:
            connection.execute(sqlalchemy.text("CREATE TABLE kept (word TEXT)"))
            connection.execute(sqlalchemy.text("INSERT INTO kept VALUES ('body')"))
        with engine.begin() as connection:
            assert connection.execute(sqlalchemy.text("SELECT word FROM kept")).scalars().all() == ["body"]
    finally:
        engine.dispose()


def test_a_database_goes_also_while_it_is_in_use_and_its_name_may_be_any(postgres: Postgres) -> None:
    name = 'Of "two" words/@'
    postgres.create_database(name)
    engine = sqlalchemy.create_engine(postgres.url(name))
    try:
        with engine.connect() as connection:
            assert connection.execute(sqlalchemy.text("SELECT current_database()")).scalar() == name
            postgres.drop_database(name)
            with pytest.raises(sqlalchemy.exc.OperationalError):
                connection.execute(sqlalchemy.text("SELECT 1"))
    finally:
        engine.dispose()
    assert name not in postgres.psql("SELECT datname FROM pg_database").splitlines()


def test_what_is_committed_survives_a_stopped_and_a_killed_server(private_postgres: Postgres) -> None:
    server = private_postgres
    server.create_database("kept")
    server.psql("CREATE TABLE starts (begun TIMESTAMPTZ)", "kept")
    for end in (server.stop, server.kill, server.kill):
        server.psql("INSERT INTO starts SELECT pg_postmaster_start_time()", "kept")
        end()
        assert not server.is_running
        with pytest.raises(PostgresFailed, match="Connection refused"):
            server.psql("SELECT 1", "kept")
        server.start()
    assert server.psql("SELECT count(*), count(DISTINCT begun) FROM starts", "kept") == "3|3"


def test_a_killed_server_takes_what_it_was_working_on_with_it(private_postgres: Postgres) -> None:
    server = private_postgres
    with subprocess.Popen(
        [sys.executable, "-c", WORKS_FOR_TEN_MINUTES, server.url("postgres")], stderr=subprocess.PIPE
    ) as client:
        until(lambda: server.psql("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'") == "1")
        assert len(processes_in(server.directory)) > 3
        server.kill()
        assert processes_in(server.directory) == []
        assert client.wait() != 0


@pytest.mark.parametrize("end", [lambda _: None, Postgres.stop, Postgres.kill], ids=["running", "stopped", "killed"])
@pytest.mark.full
def test_nothing_of_a_server_stays_when_it_is_closed(end: Callable[[Postgres], None]) -> None:
    server = Postgres()
    with server:
        memory = segment(server)
        assert memory in segments()
        assert processes_in(server.directory)
        end(server)
    assert processes_in(server.directory) == []
    assert not server.directory.exists()
    assert memory not in segments()
    assert not listens(server.port)


@pytest.mark.full
def test_a_server_that_cannot_start_says_why_and_leaves_nothing() -> None:
    server = Postgres()
    with (server.directory / "data/postgresql.conf").open("a") as settings:
        settings.write("fsync = perhaps\n")
    with pytest.raises(PostgresFailed, match='parameter "fsync" requires a Boolean value'), server:
        pass
    assert not server.directory.exists()


@pytest.mark.full
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT])
def test_a_server_ends_with_its_owner_however_that_ends(end: signal.Signals) -> None:
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", FROM_ANOTHER_PROCESS]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as owner:
        assert owner.stdout
        directory = Path(owner.stdout.readline().strip())
        assert processes_in(directory)
        os.kill(owner.pid, end)
    until(lambda: not processes_in(directory) and not directory.exists())
