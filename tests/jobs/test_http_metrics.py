"""The metrics of jobs, as Prometheus reads them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

import steps
from osrdyne_jobs import engine_for, migrate, states
from tests.jobs.administration import Administration, administration
from tests.jobs.test_store import LONG, Store

Samples = dict[tuple[str, str], float]


@pytest.fixture
def jobs(database_url: str) -> Iterator[Store]:
    engine = engine_for(database_url)
    migrate(engine)
    yield Store(engine)
    engine.dispose()


@pytest.fixture
def served(jobs: Store) -> Iterator[Administration]:
    with administration(jobs.engine) as one:
        yield one


def scraped(served: Administration) -> Samples:
    answer = served.ask("GET", "/metrics")
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/plain; version=")
    families = text_string_to_metric_families(answer.text)
    return {
        (sample.name, "".join(sample.labels.values())): sample.value for family in families for sample in family.samples
    }


def test_a_scrape_shows_jobs_runs_ages_and_lag(served: Administration, jobs: Store) -> None:
    jobs.register("waits", due=-LONG)
    jobs.register("parked", attempts=1)
    jobs.finish(jobs.begun("parked"), states.FAILED, "no")
    jobs.register("done")
    jobs.finish(jobs.begun("done"))
    jobs.register("hangs")
    jobs.begun("hangs", lease=0)

    found = scraped(served)

    assert {state: found["osrdyne_jobs", state] for state in states.STATES} == {
        **dict.fromkeys(states.STATES, 0),
        **dict.fromkeys((states.REGISTERED, states.PARKED, states.DONE, states.RUNNING), 1),
    }
    assert found["osrdyne_jobs_runs", states.FAILED] == found["osrdyne_jobs_runs", states.DONE] == 1
    assert found["osrdyne_jobs_runs", states.LOST] == 0
    assert found["osrdyne_jobs_expired_leases", ""] == 1
    assert found["osrdyne_jobs_redo_lag_seconds", ""] >= LONG
    aged = {state for name, state in found if name == "osrdyne_jobs_oldest_age_seconds"}
    assert aged == {states.REGISTERED, states.PARKED, states.DONE, states.RUNNING}


def test_each_scrape_reads_the_database_again(served: Administration, jobs: Store) -> None:
    assert scraped(served)["osrdyne_jobs", states.REGISTERED] == 0
    jobs.register()
    assert scraped(served)["osrdyne_jobs", states.REGISTERED] == 1


def test_no_label_holds_what_a_client_chose(served: Administration, jobs: Store) -> None:
    jobs.register("secret-resource", attempts=1)
    jobs.finish(jobs.begun("secret-resource"), states.FAILED, "secret-reason")
    assert "secret" not in served.ask("GET", "/metrics").text


def test_the_page_of_the_docs_explains_every_metric(served: Administration, jobs: Store) -> None:
    jobs.register()
    page = Path(steps.ROOT, "docs/howto/jobs-administration.md").read_text()
    documented = set(re.findall(r"^\| `(osrdyne_jobs\w*)` \|", page, re.MULTILINE))
    assert documented == {name for name, _ in scraped(served)}
