"""`osrdyne jobs restored`: no id of a job or a run comes again after the database was restored from a back-up."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from osrdyne_jobs import JobClient, JobType, engine_for, migrate
from osrdyne_jobs.store import running
from testbed.command_line import CommandResult, osrdyne

PLAIN = JobType("plain", payload=dict[str, int])


def restored(address: str, *words: str) -> CommandResult:
    return osrdyne("jobs", "restored", *words, variables={"OSRDYNE_JOBS_DATABASE": address})


class Life:
    """What the database gives: an id of a job and the token of its run."""

    def __init__(self, address: str) -> None:
        self.engine = engine_for(address)
        self.client = JobClient(self.engine, [PLAIN])

    def ids(self) -> tuple[int, int]:
        job = self.client.submit("plain", "r", {}).id
        with self.engine.begin() as connection:
            begun = running.begin(connection, type="plain", resource="r", worker="w", lease=60.0)
            assert begun is not None
            running.finish(connection, begun.run_lock, "done")
        return job, begun.token


@pytest.fixture
def life(database_url: str) -> Iterator[Life]:
    made = Life(database_url)
    yield made
    made.engine.dispose()


def test_ids_and_tokens_are_larger_than_all_before_each_time_that_it_is_said(database_url: str, life: Life) -> None:
    migrate(life.engine)
    given = [life.ids() for _ in range(3)]
    for _ in range(2):
        done = restored(database_url)
        assert (done.code, done.err) == (0, ""), done
        given += [life.ids() for _ in range(2)]
    for ids in zip(*given, strict=True):
        assert list(ids) == sorted(set(ids))
    # a page in a browser reads them as they are
    assert max(map(max, given)) < 2**53


def test_a_file_that_is_restored_while_a_program_has_it_open_gives_no_id_again(tmp_path: Path) -> None:
    file, backup = tmp_path / "jobs.sqlite", tmp_path / "backup.sqlite"
    life = Life(f"sqlite:///{file}")
    migrate(life.engine)
    copy(file, backup)
    before = [life.ids() for _ in range(3)]
    copy(backup, file)
    assert restored(f"sqlite:///{file}", "--json").code == 0
    after = life.ids()
    life.engine.dispose()
    assert all(new > max(old) for new, old in zip(after, zip(*before, strict=True), strict=True))


def copy(source: Path, target: Path) -> None:
    """Do what SQLite's own command `.restore` does."""
    with closing(sqlite3.connect(source)) as from_, closing(sqlite3.connect(target)) as to:
        from_.backup(to)


def test_a_database_without_tables_gets_them(database_url: str, life: Life) -> None:
    if database_url.startswith("sqlite"):
        life.engine.connect().close()  # the file is there
    assert restored(database_url).code == 0
    job, token = life.ids()
    assert min(job, token) > 1_000_000


def test_a_file_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    done = restored(f"sqlite:///{tmp_path / 'none.sqlite'}")
    assert (done.code, done.out) == (2, b"")
    assert "there is no such file" in done.line
