"""The administration where the database is away, slow or empty: one sentence, and nothing that is not for the asker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, text

from osrdyne_jobs import engine_for, migrate
from osrdyne_jobs.database.tables import metadata
from osrdyne_jobs.http import backend
from osrdyne_jobs.store import administration as store
from testbed.postgres import Postgres
from testbed.waiting import until
from tests.jobs.administration import Administration, Answer, administration

JOB = {"type": "t", "resource": "r", "payload": {"n": 1}}
QUESTIONS = [
    ("GET", "/api/jobs", None),
    ("GET", "/api/jobs/1", None),
    ("GET", "/api/jobs/figures", None),
    ("GET", "/metrics", None),
    ("POST", "/api/jobs", JOB),
    ("POST", "/api/jobs/1/redo", None),
    ("POST", "/api/jobs/1/cancel", None),
    ("DELETE", "/api/jobs/1", None),
]


def answers(served: Administration) -> list[Answer]:
    return [served.ask(*question) for question in QUESTIONS]


def errors(found: list[Answer]) -> set[tuple[int, str]]:
    return {(answer.status, answer.json["error"]) for answer in found}


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    made = engine_for(f"sqlite:///{tmp_path / 'jobs.db'}")
    yield made
    made.dispose()


def test_missing_tables_are_named_with_what_to_do_until_they_are_there(engine: Engine) -> None:
    with administration(engine) as served:
        ((status, error),) = errors(answers(served))
        assert (status, "make them with `osrdyne jobs migrate`" in error) == (503, True)
        migrate(engine)
        assert served.get("/api/jobs")["jobs"] == []
        metadata.drop_all(engine)
        assert errors(answers(served)) == {(503, error)}


def test_a_database_that_cannot_be_opened_is_away(tmp_path: Path) -> None:
    engine = engine_for(f"sqlite:///{tmp_path / 'no folder' / 'jobs.db'}")
    with administration(engine) as served:
        ((status, error),) = errors(answers(served))
    engine.dispose()
    assert (status, "the database is away" in error, str(tmp_path) in error) == (503, True, False)


def test_the_error_for_an_unreachable_server_hides_its_address_and_it_is_used_again_later(
    private_postgres: Postgres,
) -> None:
    private_postgres.create_database("jobs")
    url = private_postgres.url("jobs")
    engine = engine_for(url)
    migrate(engine)
    with administration(engine) as served:
        assert served.get("/api/jobs")["jobs"] == []
        private_postgres.kill()
        found = answers(served)
        ((status, error),) = errors(found)
        assert (status, "the database is away" in error) == (503, True)
        secrets = [str(engine.url.password), str(engine.url.host), str(engine.url.port), "Traceback"]
        assert [secret for secret in secrets for answer in found if secret in answer.text] == []
        assert served.ask("GET", "/healthz").text == "ok\n"
        private_postgres.start()
        until(lambda: served.ask("GET", "/api/jobs").status == 200)
    engine.dispose()


def test_an_answer_that_takes_too_long_is_given_up(postgres: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "STATEMENT_TIMEOUT_SECONDS", 1)
    postgres.create_database("slow_jobs")
    engine = engine_for(postgres.url("slow_jobs"))
    migrate(engine)
    with administration(engine) as served, engine.begin() as connection:
        assert served.get("/api/jobs")["jobs"] == []
        connection.execute(text("LOCK TABLE osrdyne_job IN ACCESS EXCLUSIVE MODE"))
        answer = served.ask("GET", "/api/jobs")
    engine.dispose()
    postgres.drop_database("slow_jobs")
    assert (answer.status, "did not answer in time" in answer.json["error"]) == (503, True)


def test_an_error_of_the_server_shows_no_traceback(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    migrate(engine)

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("the inside")

    monkeypatch.setattr(store, "listed", broken)
    with administration(engine) as served:
        answer = served.ask("GET", "/api/jobs")
    assert answer.status == 500
    assert answer.json["error"] == "this is an error of the server; its log has the details"


@pytest.mark.parametrize(
    "method, path, status",
    [("GET", "/nothing", 404), ("GET", "/api/jobs/", 404), ("PUT", "/api/jobs", 405), ("GET", "/docs", 404)],
)
def test_what_is_not_there_is_answered_as_json(engine: Engine, method: str, path: str, status: int) -> None:
    with administration(engine) as served:
        answer = served.ask(method, path)
    assert (answer.status, path in answer.json["error"]) == (status, True)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"[" * 500_000, "more than 64 objects and arrays are within each other"),
        (b'{"type": "t", "resource": "r", "payload": NaN}', "it is not JSON: NaN, which JSON does not have"),
        (b'{"type": "\\ud800", "resource": "r", "payload": 1}', "a text holds half of a surrogate pair"),
    ],
)
def test_a_body_that_is_not_json_that_can_be_taken_in_is_refused_with_the_reason(
    engine: Engine, body: bytes, why: str
) -> None:
    with administration(engine) as served:
        answer = served.ask("POST", "/api/jobs", body)
    assert (answer.status, answer.json["error"], answer.json["field"]) == (422, f"body: {why}", "body")
