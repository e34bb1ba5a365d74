"""How `osrdyne jobs` finds its database and makes the tables, and the one line that says why it cannot. No password."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from sqlalchemy import text

from osrdyne_jobs.database.engines import (
    FILE_VARIABLE,
    VARIABLE,
    VERSIONS,
    engine_for,
    engine_from_environment,
    newest_version,
)
from osrdyne_jobs.errors import JobError
from testbed.command_line import CommandResult, osrdyne
from testbed.postgres import Postgres


def refused(done: CommandResult) -> str:
    assert (done.code, done.out) == (2, b""), done
    assert "secret" not in done.err
    return done.line


def listing(address: str) -> CommandResult:
    return osrdyne("jobs", "list", variables={"OSRDYNE_JOBS_DATABASE": address})


def test_the_tables_are_made_once_and_then_left_as_they_are(database_url: str) -> None:
    variables = {"OSRDYNE_JOBS_DATABASE": database_url}
    first = osrdyne("jobs", "migrate", "--json", variables=variables)
    second = osrdyne("jobs", "migrate", "--json", variables=variables)

    assert json.loads(first.out)["before"] is None
    said = json.loads(second.out)
    assert (said["version"], said["before"]) == (newest_version(), newest_version())
    assert listing(database_url).out == b"no jobs\n"
    third = osrdyne("jobs", "migrate", variables=variables)
    assert third.out.decode().endswith(f" has the tables of version {newest_version()}\n")


def test_tables_of_a_later_version_are_left_alone(database_url: str) -> None:
    variables = {"OSRDYNE_JOBS_DATABASE": database_url}
    osrdyne("jobs", "migrate", variables=variables)
    engine = engine_for(database_url)
    with engine.begin() as connection:
        connection.execute(text(f"UPDATE {VERSIONS.noted_in} SET version_num = '9999'"))  # noqa: S608 - our own name
    engine.dispose()

    assert "of a version that this osrdyne_jobs does not know" in refused(
        osrdyne("jobs", "migrate", variables=variables)
    )
    assert "has not the tables of this version" in refused(listing(database_url))


def test_a_file_that_is_not_a_database_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("These are notes, and they are longer than the head of a database would be.\n" * 10)

    assert "file is not a database" in refused(listing(f"sqlite:///{tmp_path}/notes"))


def test_the_address_can_be_in_a_file_which_wins_over_the_environment(tmp_path: Path) -> None:
    address, file = f"sqlite:///{tmp_path}/jobs.db", tmp_path / "address"
    file.write_text(f"{address}\n")
    variables = {"OSRDYNE_JOBS_DATABASE": "sqlite:////nowhere/jobs.db"}
    osrdyne("jobs", "migrate", "--database-file", str(file), variables=variables)

    assert (tmp_path / "jobs.db").exists()
    assert osrdyne("jobs", "list", variables=variables | {"OSRDYNE_JOBS_DATABASE_FILE": str(file)}).code == 0


def test_a_database_without_tables_is_an_error_that_says_how_to_make_them(database_url: str) -> None:
    engine = engine_for(database_url)
    with engine.connect():
        pass  # which makes the file of SQLite
    engine.dispose()

    assert "make them with `osrdyne jobs migrate`" in refused(listing(database_url))


def test_a_file_of_sqlite_that_does_not_exist_is_an_error_and_stays_so(tmp_path: Path) -> None:
    file = tmp_path / "mistyped.db"

    assert f"database sqlite:///{file}: there is no such file; make it with" in refused(listing(f"sqlite:///{file}"))
    assert not file.exists()


@pytest.mark.parametrize(
    ("address", "why"),
    [
        (
            "postgresql://jobs:secret@127.0.0.1:1/jobs?application_name=secret",
            "database postgresql://jobs@127.0.0.1:1/",
        ),
        ("jobs:secret", "the database's address is not a URL; write postgresql://user:password@host/database"),
        ("mysql://jobs:secret@db/jobs", "jobs are kept in PostgreSQL or SQLite, not in mysql"),
        ("", "the database's address: is empty"),
    ],
)
def test_a_database_that_is_away_or_misspelt_is_named_without_password(address: str, why: str) -> None:
    assert why in refused(listing(address))


def test_without_an_address_it_says_how_to_give_one() -> None:
    done = osrdyne("jobs", "list")

    assert "name a file that holds it by --database-file, or set OSRDYNE_JOBS_DATABASE" in refused(done)


def test_a_file_that_cannot_be_read_is_named() -> None:
    done = osrdyne("jobs", "list", "--database-file", "/nowhere/address")

    assert "--database-file: cannot be read: No such file or directory: /nowhere/address" in refused(done)


@pytest.mark.full
def test_a_wrong_password_is_refused_in_one_line_without_it(postgres: Postgres) -> None:
    assert "password authentication failed" in refused(listing(postgres.url("postgres", password="secret")))


def test_a_program_finds_the_address_by_the_same_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in (FILE_VARIABLE, VARIABLE):
        monkeypatch.delenv(variable, raising=False)
    with pytest.raises(JobError, match=f"is missing; name a file that holds it by {FILE_VARIABLE}, or set {VARIABLE}"):
        engine_from_environment()

    monkeypatch.setenv(VARIABLE, "sqlite:////itself")
    assert engine_from_environment().url.database == "/itself"
    (tmp_path / "address").write_text("sqlite:////of-the-file\n")
    monkeypatch.setenv(FILE_VARIABLE, str(tmp_path / "address"))
    assert engine_from_environment().url.database == "/of-the-file"
