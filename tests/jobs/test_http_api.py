"""The API of the jobs' administration, over a real server and on both databases."""

from __future__ import annotations

import concurrent.futures
import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any, get_args

import pytest

from osrdyne_jobs import engine_for, migrate, states
from osrdyne_jobs.http import models
from osrdyne_jobs.store import history, running
from tests.jobs import description
from tests.jobs.administration import Administration, administration
from tests.jobs.test_store import Store


@pytest.fixture
def jobs(database_url: str) -> Iterator[Store]:
    engine = engine_for(database_url)
    migrate(engine)
    yield Store(engine)
    engine.dispose()


@pytest.fixture
def api(jobs: Store) -> Iterator[Administration]:
    with administration(jobs.engine) as served:
        yield served


class Casts:
    """A client of a pool that notes what is cast."""

    def __init__(self) -> None:
        self.bodies: list[tuple[str, Any]] = []

    def start_cast(self, key: str, body: bytes, *, timeout: float | None = None) -> concurrent.futures.Future[None]:
        self.bodies.append((key, json.loads(body)))
        done: concurrent.futures.Future[None] = concurrent.futures.Future()
        done.set_result(None)
        return done


def test_the_api_knows_every_state() -> None:
    assert get_args(models.State) == states.STATES


def test_a_job_is_created_cast_and_shown(jobs: Store) -> None:
    casts = Casts()
    with administration(jobs.engine, client=casts) as api:
        created = api.ask("POST", "/api/jobs", {"type": "t", "resource": "é/1", "payload": {"n": 1}})
        assert (created.status, created.json["type"], created.json["resource"]) == (201, "t", "é/1")
        assert casts.bodies == [("é/1", {"type": "t", "job": created.json["id"]})]
        shown = api.get(created.headers["location"])
    assert (shown["state"], shown["payload"], shown["runs"]) == (states.REGISTERED, {"n": 1}, [])


@pytest.mark.parametrize(
    "body, field",
    [
        ({"type": "unknown", "resource": "r", "payload": {}}, "type"),
        ({"type": "t", "resource": "a\0b", "payload": {}}, "resource"),
        ({"type": "t", "resource": "x" * 256, "payload": {}}, "resource"),
        ({"type": "t", "resource": "r", "payload": {"n": "many"}}, "payload.n"),
        ({"type": "rebuild", "resource": "r", "payload": {"n": "x" * 70_000}}, "payload"),
        ({"type": "t", "resource": "r"}, "payload"),
        ({"type": "t", "resource": "r", "payload": {}, "urgent": True}, "urgent"),
        ({"type": 1, "resource": "r", "payload": {}}, "type"),
        (b"{no JSON", "body"),
        (b"", "body"),
    ],
)
def test_a_job_that_is_wrong_is_refused_by_the_name_of_its_field(api: Administration, body: Any, field: str) -> None:
    answer = api.ask("POST", "/api/jobs", body)
    assert (answer.status, answer.json["field"]) == (422, field)
    assert answer.json["error"].startswith(field)
    assert api.get("/api/jobs") == {"jobs": [], "next": None}


def test_jobs_are_listed_by_what_is_asked_for(api: Administration, jobs: Store) -> None:
    numbers = [jobs.register(resource) for resource in "abab"]
    jobs.finish(jobs.begun("a"))

    def listed(asked: str) -> list[int]:
        return [job["id"] for job in api.get(f"/api/jobs?{asked}")["jobs"]]

    assert listed("") == numbers
    assert listed("type=t&resource=b") == [numbers[1], numbers[3]]
    assert listed("type=other") == []
    assert listed("state=done") == numbers[:1]
    assert (listed("older_than=3600"), listed("older_than=0")) == ([], numbers)
    jobs.do(lambda c: history.archive(c, after=-1, keep=3600, most=10))
    assert (listed("history=true"), listed("")) == (numbers[:1], numbers[1:])
    assert "payload" not in api.get("/api/jobs")["jobs"][0]


def test_a_list_comes_in_pages_and_each_says_where_the_next_begins(api: Administration, jobs: Store) -> None:
    numbers = [jobs.register() for _ in range(4)]
    first = api.get("/api/jobs?most=2")
    second = api.get(f"/api/jobs?most=2&after={first['next']}")
    assert [job["id"] for job in first["jobs"] + second["jobs"]] == numbers
    assert (first["next"], second["next"]) == (numbers[1], None)


@pytest.mark.parametrize(
    "path, field",
    [
        ("?most=1001", "most"),
        ("?most=0", "most"),
        ("?after=-1", "after"),
        ("?state=busy", "state"),
        ("?older_than=nan", "older_than"),
        ("?resource=%00", "resource"),
        ("/no-number", "id"),
        ("/9223372036854775808", "id"),
    ],
)
def test_a_question_that_is_wrong_is_refused_by_the_name_of_its_field(
    api: Administration, path: str, field: str
) -> None:
    answer = api.ask("GET", f"/api/jobs{path}")
    assert (answer.status, answer.json["field"]) == (422, field)


def test_a_job_is_shown_with_its_attempts(api: Administration, jobs: Store) -> None:
    number = jobs.register(attempts=1)
    begun = jobs.begun()
    jobs.finish(begun, states.FAILED, "ValueError: no", "Traceback of it")
    shown = api.get(f"/api/jobs/{number}")
    assert (shown["state"], shown["reason"], shown["attempts"]) == (states.PARKED, "ValueError: no", 1)
    (run,) = shown["runs"]
    assert (run["token"], run["worker"], run["outcome"]) == (begun.token, "w", "failed")
    assert (run["reason"], run["traceback"]) == ("ValueError: no", "Traceback of it")
    times = [datetime.fromisoformat(moment) for moment in (shown["registered_at"], run["began_at"], run["ended_at"])]
    assert times == sorted(times)
    assert times[0].timestamp() == pytest.approx(jobs.get(number).registered_at, abs=0.001)


def test_a_parked_job_is_registered_again_and_cast(jobs: Store) -> None:
    number = jobs.register(attempts=1)
    jobs.finish(jobs.begun(), states.FAILED, "no")
    casts = Casts()
    with administration(jobs.engine, client=casts) as api:
        answer = api.ask("POST", f"/api/jobs/{number}/redo")
    assert (answer.status, answer.json["state"], answer.json["attempts"]) == (200, states.REGISTERED, 0)
    assert casts.bodies == [("r", {"type": "t", "job": number})]


def test_a_waiting_job_is_cancelled_and_a_running_one_hears_of_it(api: Administration, jobs: Store) -> None:
    waits, runs = jobs.register("a"), jobs.register("b")
    run_lock = jobs.begun("b").run_lock
    assert api.ask("POST", f"/api/jobs/{waits}/cancel").json == {"id": waits, "cancelled": True}
    assert api.ask("POST", f"/api/jobs/{runs}/cancel").json == {"id": runs, "cancelled": False}
    assert jobs.state(waits) == states.CANCELLED
    assert jobs.do(lambda c: running.renew(c, [run_lock], 60)) == ({run_lock}, {run_lock})


def test_a_job_is_deleted_but_not_while_it_runs(api: Administration, jobs: Store) -> None:
    number = jobs.register()
    begun = jobs.begun()
    refused = api.ask("DELETE", f"/api/jobs/{number}")
    assert (refused.status, "runs" in refused.json["error"]) == (409, True)
    jobs.finish(begun)
    deleted = api.ask("DELETE", f"/api/jobs/{number}")
    assert (deleted.status, deleted.text) == (204, "")
    assert api.ask("GET", f"/api/jobs/{number}").status == 404


@pytest.mark.parametrize("action", ["redo", "cancel"])
def test_what_the_state_of_a_job_forbids_is_refused(api: Administration, jobs: Store, action: str) -> None:
    number = jobs.register()
    jobs.finish(jobs.begun())
    refused = api.ask("POST", f"/api/jobs/{number}/{action}")
    assert (refused.status, "is done" in refused.json["error"]) == (409, True)


@pytest.mark.parametrize("method, path", [("GET", ""), ("POST", "/redo"), ("POST", "/cancel"), ("DELETE", "")])
def test_an_unknown_job_is_not_found(api: Administration, method: str, path: str) -> None:
    answer = api.ask(method, f"/api/jobs/77{path}")
    assert (answer.status, answer.json["error"].startswith("there is no job 77")) == (404, True)


def test_figures_and_schemas_are_shown(api: Administration, jobs: Store) -> None:
    number = jobs.register(attempts=1)
    jobs.finish(jobs.begun(), states.FAILED, "ValueError: no")
    found = api.get("/api/jobs/figures")
    assert [state["state"] for state in found["states"] if state["jobs"]] == [states.PARKED]
    assert found["causes"] == [{"type": "t", "reason": "ValueError: no", "jobs": 1, "latest": number}]
    assert (found["runs"]["failed"], found["redo_lag"], found["expired_leases"]) == (1, 0, 0)

    schemas = {schema["name"]: schema for schema in api.get("/api/jobs/schemas")}
    assert {name: schema["coalesce"] for name, schema in schemas.items()} == {"t": False, "rebuild": True}
    assert schemas["t"]["payload"]["additionalProperties"] == {"type": "integer"}


def test_the_description_is_made_from_the_endpoints_and_models() -> None:
    assert json.loads(description.FILE.read_text()) == description.described(), "python -m tests.jobs.description"


def test_the_description_names_every_endpoint_its_answers_and_its_errors(api: Administration) -> None:
    paths = api.get("/openapi.json")["paths"]
    assert {path: sorted(methods) for path, methods in paths.items()} == {
        "/api/jobs": ["get", "post"],
        "/api/jobs/figures": ["get"],
        "/api/jobs/schemas": ["get"],
        "/api/jobs/{id}": ["delete", "get"],
        "/api/jobs/{id}/redo": ["post"],
        "/api/jobs/{id}/cancel": ["post"],
    }
    for methods in paths.values():
        for method in methods.values():
            assert method["security"] == [{"HTTPBearer": []}]
            answers = method["responses"]
            assert {"401", "422", "503"} <= set(answers)
            for status in set(answers) - {"204"}:
                assert answers[status]["content"]["application/json"]["schema"]
            assert answers["422"]["content"]["application/json"]["schema"]["$ref"].endswith("/Problem")
