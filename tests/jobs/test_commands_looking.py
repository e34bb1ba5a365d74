"""`osrdyne jobs list` and `show`: filters, pages, and what became of a job, for a person and as JSON."""

from __future__ import annotations

from datetime import datetime

import pytest
from sqlalchemy import update

from osrdyne_jobs.database.tables import job
from osrdyne_jobs.store import history
from tests.jobs.commands import Jobs, jobs

__all__ = ["jobs"]


def ids(document: dict[str, list[dict[str, int]]]) -> list[int]:
    return [job["id"] for job in document["jobs"]]


def test_each_filter_leaves_the_jobs_that_it_names(jobs: Jobs) -> None:
    first = jobs.client.submit("plain", "a", {}).id
    second = jobs.client.submit("plain", "b", {}).id
    third = jobs.client.submit("region", "a", {"year": 1}).id
    jobs.client.cancel(second)
    with jobs.engine.begin() as connection:
        connection.execute(update(job).where(job.c.id == first).values(registered_at=0))

    assert ids(jobs.json("list")) == [first, second, third]
    assert ids(jobs.json("list", "--type", "plain")) == [first, second]
    assert ids(jobs.json("list", "--resource", "a", "--type", "plain")) == [first]
    assert ids(jobs.json("list", "--state", "cancelled")) == [second]
    assert ids(jobs.json("list", "--older-than", "PT1H")) == [first]
    assert ids(jobs.json("list", "--older-than", "3600")) == [first]


def test_pages_follow_one_another_until_there_is_no_next(jobs: Jobs) -> None:
    for number in range(5):
        jobs.client.submit("plain", str(number), {})
    pages: list[list[int]] = []
    after: int | None = 0
    while after is not None:
        page = jobs.json("list", "--most", "2", "--after", str(after))
        pages.append(ids(page))
        after = page["next"]

    assert pages == [[1, 2], [3, 4], [5]]
    assert jobs.json("list", "--most", "5")["next"] is None
    assert jobs("list", "--most", "2").out.decode().splitlines()[-1] == "there are more: --after 2"


def test_the_table_has_a_row_a_job_and_shows_no_control_character(jobs: Jobs) -> None:
    jobs.client.submit("plain", "region 7\n", {})
    jobs.fail(1)
    out = jobs("list").out.decode()

    head, row = out.splitlines()
    assert head.split() == ["id", "type", "resource", "state", "attempts", "registered", "reason"]
    assert row.split()[:2] == ["1", "plain"]
    assert "'region 7\\n'" in row
    assert "parked" in row
    assert "1 of 1" in row
    assert "\\x1b[31mbroken" in row


def test_without_jobs_it_says_so(jobs: Jobs) -> None:
    assert jobs("list").out == b"no jobs\n"
    assert jobs.json("list") == {"jobs": [], "next": None}


def test_the_history_is_listed_on_request_and_shown_in_any_case(jobs: Jobs) -> None:
    number = jobs.client.submit("plain", "r", {"a": 1}).id
    jobs.client.cancel(number)
    with jobs.engine.begin() as connection:
        history.archive(connection, after=-1.0, keep=3600.0, most=10)

    assert ids(jobs.json("list")) == []
    assert ids(jobs.json("list", "--history")) == [number]
    assert jobs.json("show", str(number))["state"] == "cancelled"


def test_a_job_is_shown_with_its_payload_and_each_of_its_runs(jobs: Jobs) -> None:
    number = jobs.client.submit("region", "r", {"year": 2013}).id
    jobs.fail(number)
    document = jobs.json("show", str(number))

    assert document["payload"] == {"year": 2013}
    assert (document["state"], document["attempts"], document["max_attempts"]) == ("failed", 1, 5)
    assert datetime.fromisoformat(document["registered_at"]).tzinfo is not None
    [run] = document["runs"]
    assert (run["worker"], run["outcome"], run["reason"]) == ("w-1", "failed", "it is \x1b[31mbroken")
    assert run["traceback"] == "Traceback:\n  at\x1b[31m x"
    assert run["began_at"] <= run["ended_at"]
    page = jobs("show", str(number)).out.decode()
    assert 'payload: {"year": 2013}\n' in page
    assert "by w-1" in page
    assert "failed: it is \\x1b[31mbroken\n    Traceback:\n      at\\x1b[31m x\n" in page


def test_an_unknown_job_is_a_no(jobs: Jobs) -> None:
    done = jobs("show", "17")

    assert (done.code, done.out) == (1, b"")
    assert "there is no job 17" in done.line
    assert "there is no job 17" in jobs.json("show", "17", code=1)["error"]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--state", "lost"), "--state 'lost' is not a state; there are registered, running, failed"),
        (("--older-than", "soon"), "--older-than: 'soon' is not a duration; give seconds"),
        (("--older-than", "-5"), "--older-than: -5.0 is not a duration"),
        (("--resource", b"\xff"), "--resource '\\udcff' is not UTF-8 text"),
    ],
)
def test_a_filter_that_can_match_nothing_is_an_error(jobs: Jobs, words: tuple[str | bytes, ...], why: str) -> None:
    done = jobs("list", *words)

    assert (done.code, done.out) == (2, b"")
    assert why in done.line
