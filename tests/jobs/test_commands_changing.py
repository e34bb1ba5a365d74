"""`osrdyne jobs cancel`, `delete` and `redo ID...`: each job in a transaction of its own, and an answer for each."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import Connection
from sqlalchemy.exc import OperationalError

from osrdyne_jobs import UnknownJob, states
from osrdyne_jobs.store import administration, running
from tests.jobs.commands import Jobs, jobs

__all__ = ["jobs"]


def begin(jobs: Jobs, resource: str) -> None:
    with jobs.engine.begin() as connection:
        assert running.begin(connection, type="plain", resource=resource, worker="w", lease=60.0)


def test_jobs_are_cancelled_and_one_that_runs_hears_of_it(jobs: Jobs) -> None:
    waiting, running = (jobs.client.submit("plain", name, {}).id for name in "ab")
    begin(jobs, "b")
    done = jobs("cancel", str(waiting), str(running))

    assert (done.code, done.err) == (0, "")
    assert done.out.decode().splitlines() == [
        f"job {waiting}: cancelled",
        f"job {running}: still running; its handler hears that it should end",
    ]
    assert jobs.state(waiting) == states.CANCELLED
    assert jobs.client.get(running).cancel


def test_failed_parked_and_cancelled_jobs_get_their_attempts_again_and_others_are_a_no(jobs: Jobs) -> None:
    parked, cancelled, waiting = (jobs.client.submit("plain", name, {}).id for name in "abc")
    failed = jobs.client.submit("region", "a", {"year": 1}).id
    jobs.fail(parked)
    jobs.fail(failed)
    jobs.client.cancel(cancelled)
    wanted = [parked, waiting, cancelled, 99, failed]

    answers = jobs.json("redo", *map(str, wanted), code=1)["jobs"]

    assert [answer["id"] for answer in answers] == wanted
    assert [answer.get("state") for answer in answers] == ["registered", None, "registered", None, "registered"]
    assert answers[1]["error"] == f"job {waiting} is registered: only a failed, parked or cancelled job is done again"
    assert "there is no job 99" in answers[3]["error"]
    assert [jobs.state(job) for job in (parked, cancelled, failed)] == [states.REGISTERED] * 3
    assert jobs.client.get(parked).attempts == 0


def test_jobs_are_deleted_but_not_while_they_run(jobs: Jobs) -> None:
    waiting, running = (jobs.client.submit("plain", name, {}).id for name in "ab")
    begin(jobs, "b")
    done = jobs("delete", str(waiting), str(running))

    assert (done.code, done.out.decode()) == (1, f"job {waiting}: deleted\n")
    assert f"job {running} runs: cancel it first" in done.line
    assert jobs.state(running) == states.RUNNING
    with pytest.raises(UnknownJob):
        jobs.client.get(waiting)


def test_a_database_that_goes_away_between_two_jobs_ends_the_command_with_what_was_done(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = [jobs.client.submit("plain", name, {}).id for name in "abc"]
    cancel = administration.cancel

    def broken(connection: Connection, number: int) -> Any:
        if number == numbers[1]:
            raise OperationalError("SELECT a secret", {}, Exception("the server closed the connection"))
        return cancel(connection, number)

    monkeypatch.setattr(administration, "cancel", broken)
    first, second = jobs.json("cancel", *map(str, numbers), code=2)["jobs"]

    assert first == {"id": numbers[0], "state": "cancelled"}
    assert second["error"].endswith(": the server closed the connection; later ones were not tried")
    assert [jobs.state(number) for number in numbers] == ["cancelled", "registered", "registered"]


def test_a_job_that_is_named_twice_is_changed_once(jobs: Jobs) -> None:
    number = str(jobs.client.submit("plain", "a", {}).id)

    assert jobs.json("cancel", number, number)["jobs"] == [{"id": int(number), "state": "cancelled"}]


def test_settings_are_refused_where_jobs_are_named(jobs: Jobs) -> None:
    done = jobs("redo", "1", "--settings", "x.toml")

    assert done.code == 2
    assert "--settings is for the process" in done.line
