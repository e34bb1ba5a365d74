"""What page, API and command of jobs say of the causes of docs/reference/causes.md, on a real pool."""

from __future__ import annotations

import sys

import pytest

from osrdyne_jobs import JobClient, states
from testbed.causes import JOBS, causes
from testbed.command_line import osrdyne
from testbed.job_worker import SCRIPTED
from testbed.waiting import until
from tests.jobs.administration import administration
from tests.jobs.test_live_pool import Jobs, live, make_daemon, make_pool, redo

__all__ = ["live", "make_daemon", "make_pool", "redo"]

pytestmark = pytest.mark.full

#: A worker that does this with each job.
WORKER = """
import os
from osrdyne_jobs import JobType, JobWorker

def do(run):
    {}

JobWorker(os.environ["JOBS_DATABASE"], {{JobType("scripted", payload=dict[str, float]): do}}, lease=8.0).run()
"""
MISSING_FILE = "open('data/XX.json')"


def reasons(live: Jobs, database_url: str, number: int) -> list[str]:
    """Return why a job is not done, of the API, which the page shows, and check that the command says the same."""
    with administration(live.engine, token=None) as served:
        job = served.get(f"/api/jobs/{number}")
    found = [part["reason"] for part in (job, *job["runs"]) if part["reason"]]
    shown = osrdyne("jobs", "show", str(number), variables={"OSRDYNE_JOBS_DATABASE": database_url}).out.decode()
    assert all(reason in shown for reason in found), (found, shown)
    assert all(line in shown for run in job["runs"] for line in (run["traceback"] or "").splitlines())
    return found


def with_worker(live: Jobs, program: str, **pool: object) -> int:
    """Have workers run this program, and submit a job of the resource XX."""
    live.daemon.stop()
    live.daemon.settings["driver"]["template"]["command"] = [sys.executable, "-c", program]
    live.daemon.settings["pool"] |= pool
    live.daemon.start()
    return JobClient(live.engine, [SCRIPTED], live.client, cast_after=0.5).submit("scripted", "XX", {}).id


def until_said(live: Jobs, database_url: str, number: int, title: str) -> None:
    """Wait until the words of a cause are there: they come with the next scan of redo, or the next attempt."""
    cause = causes()[title]
    assert cause.patterns(JOBS)
    until(lambda: not cause.missing(JOBS, reasons(live, database_url, number)), every=0.5, what=f"why: {title}")


def test_a_job_whose_workers_cannot_be_started_says_why(live: Jobs, redo: None, database_url: str) -> None:
    number = with_worker(live, MISSING_FILE, start_failures=3)
    until_said(live, database_url, number, "a file that it needs is missing")
    # And it waits, to be done once workers start
    with_worker(live, WORKER.format("pass"))
    live.until(states.DONE, number)
    assert reasons(live, database_url, number) == []


def test_a_job_whose_worker_died_says_where_its_end_is_reported(live: Jobs, redo: None, database_url: str) -> None:
    number = with_worker(live, WORKER.format("os._exit(3)"))
    until_said(live, database_url, number, "the handler ends the process")
    assert states.LOST in live.attempts(number)
    status_text = osrdyne("status", "--url", live.daemon.url, "--key", "XX").out.decode()
    assert "worker exited with status 3" in status_text


def test_a_job_that_failed_has_what_was_raised(live: Jobs, database_url: str) -> None:
    number = with_worker(live, WORKER.format("{}['9']"))
    until_said(live, database_url, number, "the handler raises")
    assert states.FAILED in live.attempts(number)


def test_a_job_whose_starts_get_no_answer_says_where_to_look(live: Jobs, redo: None, database_url: str) -> None:
    number = with_worker(live, MISSING_FILE, start_failures=0)
    until_said(live, database_url, number, "a file is missing, and `start_failures` is 0")


def test_a_job_whose_queue_the_broker_refuses_says_so(live: Jobs, redo: None, database_url: str) -> None:
    pool = live.pool
    pool.broker.management.put("vhost-limits", pool.vhost, "max-queues", body={"value": len(pool.queues())})
    number = with_worker(live, WORKER.format("pass"))
    until_said(live, database_url, number, "the broker refuses the key's queue")
