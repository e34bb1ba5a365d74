"""`osrdyne jobs create` and `schemas`: what is checked before a job is registered, and who casts it."""

from __future__ import annotations

from pathlib import Path

import pytest

from osrdyne_jobs.job_types import JobType
from osrdyne_protocol.worker_environment import WorkerEnvironment
from tests.jobs.commands import Jobs, jobs

__all__ = ["jobs"]

#: Where nothing listens: the port of tcpmux.
NO_BROKER = "amqp://user:secret@127.0.0.1:1/%2F"
MAPPING = {JobType("mapped"): print}
NO_TYPES = [WorkerEnvironment]


def test_a_job_is_registered_and_without_a_broker_left_to_redo(jobs: Jobs) -> None:
    done = jobs("create", "region", "region-7", '{"year": 2013}')

    assert (done.code, done.err) == (0, "")
    assert done.out == b"job 1 is registered; redo casts it (no broker is named)\n"
    job = jobs.client.get(1)
    assert (job.type, job.resource, job.payload, job.coalesce) == ("region", "region-7", '{"year":2013}', True)


def test_the_payload_can_come_from_standard_input(jobs: Jobs) -> None:
    assert jobs.json("create", "region", "r", "-", stdin=b'{"year": 7}')["id"] == 1
    assert jobs.client.get(1).payload == '{"year":7}'


def test_a_broker_that_is_away_leaves_the_job_registered_and_the_command_says_so(jobs: Jobs) -> None:
    variables = {"OSRDYNE_CLIENT_URI": NO_BROKER, "OSRDYNE_CLIENT_POOL": "core"}
    document = jobs.json("create", "plain", "r", "{}", variables=variables)

    assert document == {"id": 1, "type": "plain", "resource": "r", "cast": False, "not_cast": document["not_cast"]}
    assert "nothing listens there" in document["not_cast"]
    assert "secret" not in document["not_cast"]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("no-such", "r", "{}"), "type: 'no-such' is unknown; known are: plain, region"),
        (("region", "r", '{"year": "x"}'), "payload.year: "),
        (("region", "r", "{"), "payload: Invalid JSON"),
        (("region", "r" * 256, '{"year": 1}'), "resource: it cannot be the key of a worker group"),
        (("region", b"\xff", '{"year": 1}'), "resource: it cannot be the key of a worker group"),
    ],
)
def test_what_does_not_fit_is_a_no_that_names_the_field_and_nothing_is_registered(
    jobs: Jobs, words: tuple[str | bytes, ...], why: str
) -> None:
    done = jobs("create", *words)

    assert (done.code, done.out) == (1, b""), done
    assert why in done.line
    assert jobs.json("list")["jobs"] == []


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--types", "nowhere:TYPES"), "--types nowhere:TYPES cannot be loaded: ModuleNotFoundError"),
        (("--types", "nowhere"), "--types 'nowhere': give MODULE:NAME"),
        (("--types", f"{__name__}:NO_TYPES"), "is neither an iterable of JobType nor a mapping with such keys"),
        (("--types", f"{__name__}:NO_BROKER"), "is neither an iterable of JobType nor a mapping with such keys"),
        (("--types", f"{__name__}:jobs.x"), "cannot be loaded: AttributeError"),
        (("--broker-file", "/nowhere/uri"), "--broker-file: cannot be read: No such file or directory: /nowhere/uri"),
    ],
)
def test_an_option_that_cannot_be_used_is_named_before_a_job_is_registered(
    jobs: Jobs, options: tuple[str, ...], why: str
) -> None:
    done = jobs("create", "plain", "r", "{}", *options)

    assert (done.code, done.out) == (2, b""), done
    assert why in done.line
    assert jobs.json("list")["jobs"] == []


def test_a_broker_without_a_pool_is_an_error_before_a_job_is_registered(jobs: Jobs) -> None:
    done = jobs("create", "plain", "r", "{}", variables={"OSRDYNE_CLIENT_URI": NO_BROKER})

    assert done.code == 2
    assert "a broker is named and no pool; give --pool NAME" in done.line
    assert jobs.json("list")["jobs"] == []


def test_standard_input_that_is_not_text_is_an_error(jobs: Jobs) -> None:
    assert "is not UTF-8 text" in jobs("create", "plain", "r", "-", stdin=b"\xff").line


def test_schemas_has_each_type_with_its_schema_and_needs_no_database(jobs: Jobs) -> None:
    document = jobs.json("schemas", variables={"OSRDYNE_JOBS_DATABASE": "nowhere"})

    assert [kind["name"] for kind in document["types"]] == ["plain", "region"]
    region = document["types"][1]
    assert (region["coalesce"], region["max_attempts"]) == (True, 5)
    assert region["payload"]["required"] == ["year"]
    lines = jobs("schemas").out.decode().splitlines()
    assert lines[:3] == ["name: plain", "coalesce: no", "max attempts: 1"]


def test_types_may_be_the_handlers_of_a_worker_and_in_the_current_directory(
    jobs: Jobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [kind["name"] for kind in jobs.json("schemas", "--types", f"{__name__}:MAPPING")["types"]] == ["mapped"]
    (tmp_path / "here_only.py").write_text("from osrdyne_jobs import JobType\nTYPES = (JobType('here'),)\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", ["/nowhere", *__import__("sys").path])

    assert [kind["name"] for kind in jobs.json("schemas", "--types", "here_only:TYPES")["types"]] == ["here"]


def test_without_types_it_says_how_to_name_them(jobs: Jobs) -> None:
    done = jobs("schemas", "--types", "")

    assert done.code == 2
    assert "give" in done.line
    assert "MODULE:NAME" in done.line
