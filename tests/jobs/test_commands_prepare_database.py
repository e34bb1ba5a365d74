"""`osrdyne jobs prepare-database` on a real server: what it makes, who may do what then, and what it refuses."""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine

from osrdyne_jobs import JobClient, JobType, engine_for
from osrdyne_jobs.database.engines import Address, migrate, reading
from osrdyne_jobs.database.preparation import prepare, retire, roles_in_use
from osrdyne_jobs.errors import NotPrepared
from osrdyne_protocol.names import DatabaseNames
from testbed.command_line import CommandResult, osrdyne
from testbed.postgres import Postgres, PostgresFailed, quoted

ROUTES = JobType("rebuild-routes")


@contextmanager
def opened(address: Address) -> Iterator[Engine]:
    engine = engine_for(address)
    yield engine
    engine.dispose()


class MissingDatabase:
    """A pool's database on the run's server, which does not have it yet."""

    def __init__(self, server: Postgres, directory: Path) -> None:
        self.server, self._directory = server, directory
        self.names = DatabaseNames.of("core", f"I {secrets.token_hex(4)}")
        self.passwords = {"owner": "o/w ner@:1", "programs": "pro'g %s{}\"2"}
        self.admin = server.url("postgres")

    @property
    def owner(self) -> str:
        return self.server.url(self.names.database, self.names.owner, self.passwords["owner"])

    @property
    def programs(self) -> str:
        return self.server.url(self.names.database, self.names.database, self.passwords["programs"])

    def __call__(self, **changes: str) -> list[str]:
        return prepare(**{"admin": self.admin, "owner": self.owner, "database": self.programs, **changes})

    def command(self, *words: str, **changes: str) -> CommandResult:
        """Run the command, with the three addresses in files."""
        given = {"admin": self.admin, "owner": self.owner, "database": self.programs, **changes}
        options: list[str] = []
        for name, address in given.items():
            (self._directory / name).write_text(f"{address}\n")
            options += [f"--{name}-file", str(self._directory / name)]
        return osrdyne("jobs", "prepare-database", *options, *words)

    def migrate(self) -> None:
        with opened(self.owner) as engine:
            migrate(engine)

    def remove(self) -> None:
        self.server.psql(f"DROP DATABASE IF EXISTS {quoted(self.names.database)} WITH (FORCE)")
        for role in (self.names.database, self.names.owner):
            self.server.psql(f"DROP ROLE IF EXISTS {quoted(role)}")


@pytest.fixture
def wanted(postgres: Postgres, tmp_path: Path) -> Iterator[MissingDatabase]:
    one = MissingDatabase(postgres, tmp_path)
    yield one
    one.remove()


def test_an_owner_makes_the_tables_and_programs_register_jobs(wanted: MissingDatabase) -> None:
    first = wanted.command("--json")
    assert first.code == 0, first
    assert [line.split(" was ")[0] for line in json.loads(first.out)["changed"][:3]] == [
        f"role {wanted.names.owner}",
        f"role {wanted.names.database}",
        f"database {wanted.names.database}",
    ]
    wanted.migrate()

    with JobClient(wanted.programs, [ROUTES]) as jobs:
        number = jobs.submit("rebuild-routes", "region-7", {}).id
        jobs.cancel(number)
        assert jobs.get(number).state == "cancelled"
    # And another run finds nothing to do
    assert wanted.command().out == b"nothing to do\n"


@pytest.mark.parametrize(
    ("statement", "refusal"),
    [
        ("DROP TABLE osrdyne_job", "must be owner of table"),
        ("ALTER TABLE osrdyne_job ADD COLUMN x INTEGER", "must be owner of table"),
        ("TRUNCATE osrdyne_job", "permission denied for table"),
        ("CREATE TABLE mine (x INTEGER)", "permission denied for schema public"),
        ("CREATE TEMPORARY TABLE mine (x INTEGER)", "permission denied to create temporary tables"),
        ("CREATE DATABASE mine", "permission denied to create database"),
    ],
)
def test_programs_may_not_change_the_tables(wanted: MissingDatabase, statement: str, refusal: str) -> None:
    wanted()
    wanted.migrate()

    names, password = wanted.names, wanted.passwords["programs"]
    with pytest.raises(PostgresFailed, match=refusal):
        wanted.server.psql(statement, names.database, names.database, password)


def test_other_users_of_the_server_may_not_connect(wanted: MissingDatabase, postgres: Postgres) -> None:
    wanted()
    other = f"other_{secrets.token_hex(4)}"
    postgres.psql(f"CREATE ROLE {other} LOGIN PASSWORD 'word'")
    try:
        with pytest.raises(PostgresFailed, match="permission denied for database"):
            postgres.psql("SELECT 1", wanted.names.database, other, "word")
    finally:
        postgres.psql(f"DROP ROLE {other}")


def test_tables_of_yours_are_for_the_programs_too(wanted: MissingDatabase) -> None:
    wanted()
    names = wanted.names
    wanted.server.psql("CREATE TABLE mine (x SERIAL)", names.database, names.owner, wanted.passwords["owner"])

    wanted.server.psql("INSERT INTO mine DEFAULT VALUES", names.database, names.database, wanted.passwords["programs"])


def test_an_administrator_who_is_not_a_superuser_can_do_it(wanted: MissingDatabase, postgres: Postgres) -> None:
    admin = f"admin_{secrets.token_hex(4)}"
    postgres.psql(f"CREATE ROLE {admin} LOGIN CREATEDB CREATEROLE PASSWORD 'word'")
    wanted.admin = postgres.url("postgres", admin, "word")
    try:
        assert wanted()
        wanted.passwords["programs"] = "another"
        assert wanted() == [f"the password of role {wanted.names.database} was set"]
        wanted.migrate()
    finally:
        wanted.remove()
        postgres.psql(f"DROP ROLE {admin}")


def test_a_new_password_is_set_and_the_former_one_is_refused(wanted: MissingDatabase) -> None:
    wanted()
    wanted.migrate()
    wanted.passwords["programs"] = "another"

    assert wanted() == [f"the password of role {wanted.names.database} was set"]
    with JobClient(wanted.programs, [ROUTES]) as jobs:
        assert jobs.submit("rebuild-routes", "a", {}).id
    with pytest.raises(PostgresFailed, match="password authentication failed"):
        wanted.server.psql("SELECT 1", wanted.names.database, wanted.names.database, "pro'g %s{}\"2")


def test_a_program_that_runs_goes_on_with_the_new_password_of_its_file(wanted: MissingDatabase, tmp_path: Path) -> None:
    wanted()
    file = tmp_path / "jobs.address"
    file.write_text(wanted.programs)
    with opened(lambda: file.read_text().strip()) as engine:
        with reading(engine) as connection:
            connection.exec_driver_sql("SELECT 1")
        wanted.passwords["programs"] = "another"
        wanted()
        file.write_text(wanted.programs)
        engine.dispose()  # the next connection is a new one

        with reading(engine) as connection:
            assert connection.exec_driver_sql("SELECT 1").scalar() == 1
        # And it uses the last address that it knows where the file is away
        file.unlink()
        engine.dispose()
        with reading(engine) as connection:
            assert connection.exec_driver_sql("SELECT 1").scalar() == 1


def test_several_at_once_make_one_database(wanted: MissingDatabase) -> None:
    done: list[Any] = []

    def run() -> None:
        try:
            done.append(wanted())
        except NotPrepared as error:
            done.append(error)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(map(bool, done)) == [False, False, False, True], done


def test_rights_that_were_taken_away_are_given_again(wanted: MissingDatabase) -> None:
    wanted()
    wanted.migrate()
    names = wanted.names
    wanted.server.psql(f"REVOKE ALL ON osrdyne_job FROM {quoted(names.database)}", names.database)

    assert wanted() == [f"role {names.database} got its rights on database {names.database}"]
    assert wanted() == []


def test_roles_that_are_retired_cannot_log_in_until_they_are_prepared_again(wanted: MissingDatabase) -> None:
    wanted()
    names = wanted.names
    both = (names.database, names.owner)
    assert roles_in_use(wanted.admin, *both, "not-a-role") == sorted(both)

    retire(wanted.admin, *both)

    assert roles_in_use(wanted.admin, *both) == []
    with pytest.raises(PostgresFailed, match="not permitted to log in"):
        wanted.server.psql("SELECT 1", names.database, names.database, wanted.passwords["programs"])
    assert len(wanted()) == 2
    assert wanted.server.psql("SELECT 1", names.database, names.database, wanted.passwords["programs"]) == "1"


def test_no_password_is_in_the_log_of_the_server_or_in_what_the_command_says(
    private_postgres: Postgres, tmp_path: Path
) -> None:
    private_postgres.psql("ALTER SYSTEM SET log_statement = 'all'")
    private_postgres.psql("SELECT pg_reload_conf()")
    wanted = MissingDatabase(private_postgres, tmp_path)
    wanted.passwords = {"owner": "first-secret", "programs": "second-secret"}
    said = str(wanted.command())
    wanted.passwords["programs"] = "third-secret"
    said += str(wanted.command())

    said += (private_postgres.directory / "log").read_text(errors="replace")
    assert "CREATE ROLE" in said
    assert "SCRAM-SHA-256" in said
    assert "-secret" not in said


def _other_owner(wanted: MissingDatabase) -> dict[str, str]:
    wanted.server.create_database(wanted.names.database)
    return {}


def _superuser(wanted: MissingDatabase) -> dict[str, str]:
    wanted.server.psql(f"CREATE ROLE {quoted(wanted.names.owner)} SUPERUSER")
    return {}


def _two_databases(wanted: MissingDatabase) -> dict[str, str]:
    return {"owner": wanted.server.url("postgres", wanted.names.owner, "word")}


def _one_user(wanted: MissingDatabase) -> dict[str, str]:
    return {"owner": wanted.programs}


def _wrong_password(wanted: MissingDatabase) -> dict[str, str]:
    return {"admin": wanted.server.url("postgres", password="s3cret")}


def _no_rights(wanted: MissingDatabase) -> dict[str, str]:
    wanted()
    return {"owner": wanted.owner.replace("jobs-owner", "jobs-owner2"), "admin": wanted.owner}


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (_other_owner, "is there, and belongs to osrdyne_admin; name another database, or give it to the owner"),
        (_superuser, "is there, and may administer the server; name another user"),
        (_two_databases, "name two databases; name one"),
        (_one_user, "must be three users: each has other rights"),
        (_wrong_password, "cannot be used as user osrdyne_admin: connection failed"),
        (_no_rights, "permission denied to create role"),
        (lambda _: {"owner": "postgresql://a:s3cret@[::1/x"}, "of the owner: the database's address cannot be read"),
        (
            lambda _: {"owner": "mysql://a:s3cret@b/x"},
            "of the owner: jobs are kept in PostgreSQL or SQLite, not in mysql",
        ),
        (lambda _: {"owner": "sqlite:////x"}, "the address of the owner is none of PostgreSQL"),
        (lambda _: {"owner": "postgresql://a:s3cret@b/x?pooler=true"}, "is that of a pooler; name the server itself"),
        (lambda _: {"owner": "postgresql://a:s3cret@b"}, "the address of the owner names no database"),
        (lambda _: {"admin": "postgresql://"}, "the address of the administrator names no user"),
        (lambda _: {"admin": "postgresql://a:s3cret@127.0.0.1:1/x"}, "Connection refused"),
    ],
)
def test_what_cannot_be_done_is_one_line_without_a_password(
    wanted: MissingDatabase, given: Callable[[MissingDatabase], dict[str, str]], why: str
) -> None:
    done = wanted.command(**given(wanted))

    assert (done.code, done.out) == (2, b"")
    assert why in done.line
    assert not any(
        password in done.err for password in ("s3cret", *wanted.passwords.values(), wanted.server.admin_password)
    )
