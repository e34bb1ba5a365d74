"""What a worker does with jobs, on both databases, without a broker: its handler gets requests as a pool sends them."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, cast

import pytest
from psycopg.errors import CheckViolation
from pydantic import BaseModel
from sqlalchemy import Connection, Engine, create_engine, text
from sqlalchemy.exc import IntegrityError

from osrdyne_jobs import JobCancelled, JobClient, JobType, JobWorker, LeaseLost, Run, messages, states
from osrdyne_jobs.database import tables
from osrdyne_jobs.database.engines import engine_for, migrate, reading
from osrdyne_jobs.errors import NoSchema
from osrdyne_jobs.store import administration, records, running, scans, tracebacks
from osrdyne_worker import Reject, Request, Requeue
from testbed.waiting import PATIENCE_SECONDS, until

PLAIN = JobType("plain", payload=dict[str, int])
SINGLE = JobType("single", payload=dict[str, int], max_attempts=1)
LONG = 3600.0
#: Ends within a test unless it is renewed.
SHORT_LEASE_SECONDS = 1.0
#: Does not end although the machine stands still for a moment.
STEADY = 6.0


def request(type: str = "plain", resource: str = "r", job: int = 0) -> Request:  # noqa: A002
    return Request(resource, messages.encode(type, job), {}, None, False, None)


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    made = engine_for(database_url)
    migrate(made)
    yield made
    made.dispose()


@pytest.fixture
def client(engine: Engine) -> JobClient:
    return JobClient(engine, [PLAIN, SINGLE])


MakeWorker = Callable[..., JobWorker]


@pytest.fixture
def make_worker(engine: Engine) -> Iterator[MakeWorker]:
    made: list[JobWorker] = []

    def make(handler: Callable[[Run], object], **options: Any) -> JobWorker:
        made.append(JobWorker(engine, {PLAIN: handler, SINGLE: handler}, **{"lease": LONG, **options}))
        return made[-1]

    yield make
    for worker in made:
        worker.close()


@pytest.fixture
def aside() -> Iterator[Callable[..., Future[None]]]:
    """Calls something in a thread."""
    with ThreadPoolExecutor(4) as threads:
        yield threads.submit


def state(engine: Engine, number: int) -> str:
    with reading(engine) as connection:
        return administration.get(connection, number).state


def test_a_worker_without_tables_says_what_to_do(database_url: str) -> None:
    with pytest.raises(NoSchema, match="migrate"):
        JobWorker(database_url, {PLAIN: print})


def test_a_handler_gets_what_was_registered_and_all_that_is_due_is_done(
    engine: Engine, client: JobClient, make_worker: MakeWorker
) -> None:
    runs: list[Run] = []
    jobs = [client.submit("plain", "r", {"n": n}) for n in range(3)]
    client.submit("plain", "other", {"n": 9})
    make_worker(runs.append, name="w").handle(request())
    assert [(run.payload, run.job, run.attempt, run.jobs) for run in runs] == [
        ({"n": n}, job.id, 1, 1) for n, job in enumerate(jobs)
    ]
    assert [state(engine, job.id) for job in jobs] == [states.DONE] * 3
    assert sorted(run.token for run in runs) == [run.token for run in runs]


def restore_what_was_empty(engine: Engine) -> None:
    """Bring the database back to a state without jobs, as a back-up has it: its ids begin again."""
    with engine.begin() as connection:
        for table in tables.metadata.tables:
            connection.execute(text(f"DELETE FROM {table}"))  # noqa: S608 - our own names
        if engine.dialect.name == "sqlite":
            connection.execute(text("DELETE FROM sqlite_sequence"))
        else:
            for table in ("osrdyne_job", "osrdyne_job_run"):
                connection.execute(text(f"ALTER SEQUENCE {table}_id_seq RESTART"))


def test_a_worker_does_jobs_whose_ids_came_again_with_a_restored_database(
    engine: Engine, client: JobClient, make_worker: MakeWorker
) -> None:
    worker = make_worker(lambda _: None)
    before = [client.submit("plain", "r", {}).id for _ in range(3)]
    for job in before:
        worker.handle(request(job=job))
    restore_what_was_empty(engine)
    again = [client.submit("plain", "r", {}).id for _ in range(3)]
    assert again == before
    worker.handle(request(job=again[0]))
    assert [state(engine, job) for job in again] == [states.DONE] * 3


def test_a_run_of_before_a_restore_touches_no_run_that_has_its_token_now(
    engine: Engine, client: JobClient, make_worker: MakeWorker, aside: Callable[..., Future[None]]
) -> None:
    runs: list[Run] = []
    goes_on = threading.Event()

    def handler(run: Run) -> None:
        runs.append(run)
        assert goes_on.wait(PATIENCE_SECONDS)
        with run.transaction():
            pass

    first, second = (make_worker(handler, lease=STEADY, name=name) for name in ("first", "second"))
    client.submit("plain", "r", {})
    former = aside(first.handle, request())
    until(lambda: runs, what="the first run")
    restore_what_was_empty(engine)
    now = client.submit("plain", "r", {})
    latter = aside(second.handle, request())
    until(lambda: len(runs) > 1, what="the run of the restored database")
    assert runs[0].token == runs[1].token
    until(runs[0].cancelled.is_set, what="the news that the lease is lost")
    assert not runs[1].cancelled.is_set()
    with pytest.raises(LeaseLost), runs[0].transaction():
        pass
    goes_on.set()
    former.result(PATIENCE_SECONDS)
    latter.result(PATIENCE_SECONDS)
    assert state(engine, now.id) == states.DONE


def test_one_worker_distinguishes_its_runs_where_a_restored_database_gave_both_one_token(
    engine: Engine, client: JobClient, make_worker: MakeWorker, aside: Callable[..., Future[None]]
) -> None:
    runs: list[Run] = []
    goes_on = threading.Event()

    def handler(run: Run) -> None:
        runs.append(run)
        assert goes_on.wait(PATIENCE_SECONDS)

    worker = make_worker(handler, lease=STEADY, threads=2)
    client.submit("plain", "r", {})
    former = aside(worker.handle, request())
    until(lambda: runs, what="the first run")
    restore_what_was_empty(engine)
    now = client.submit("single", "r", {})
    latter = aside(worker.handle, request("single"))
    until(lambda: len(runs) > 1, what="the run of the restored database")
    until(runs[0].cancelled.is_set, what="the news that the lease is lost")
    goes_on.set()
    former.result(PATIENCE_SECONDS)
    latter.result(PATIENCE_SECONDS)
    assert not runs[1].cancelled.is_set()
    assert state(engine, now.id) == states.DONE


def test_a_job_that_is_registered_just_before_the_end_of_a_run_is_begun_all_the_same(
    engine: Engine, client: JobClient, make_worker: MakeWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    late: list[int] = []
    go_on = running.go_on

    def register_late(connection: Connection, *given: Any, **named: Any) -> records.StartedRun | None:
        begun = go_on(connection, *given, **named)
        if not late:
            late.append(client.register(connection, "plain", "r", {}).id)
        return begun

    monkeypatch.setattr(running, "go_on", register_late)
    client.submit("plain", "r", {})
    make_worker(lambda _: None).handle(request())
    assert state(engine, late[0]) == states.DONE


def test_a_handler_that_raises_fails_its_attempt_with_the_reason(
    engine: Engine, client: JobClient, make_worker: MakeWorker
) -> None:
    def broken(run: Run) -> None:
        raise LookupError("no such region")

    job, parked = client.submit("plain", "r", {}), client.submit("single", "r", {})
    worker = make_worker(broken, name="w")
    worker.handle(request())
    worker.handle(request("single"))
    assert (state(engine, job.id), state(engine, parked.id)) == (states.FAILED, states.PARKED)
    with reading(engine) as connection:
        [attempt] = administration.attempts(connection, job.id)
    assert (attempt["outcome"], attempt["reason"], attempt["worker"]) == ("failed", "LookupError: no such region", "w")


@pytest.mark.parametrize("error", [SystemExit(1), KeyboardInterrupt()])
def test_a_handler_that_wants_to_end_the_worker_fails_its_attempt(
    engine: Engine, client: JobClient, make_worker: MakeWorker, error: BaseException
) -> None:
    def ending(run: Run) -> None:
        raise error

    job = client.submit("plain", "r", {})
    make_worker(ending).handle(request())
    assert state(engine, job.id) == states.FAILED


def test_a_job_that_takes_longer_than_its_lease_keeps_its_lock(
    engine: Engine, client: JobClient, make_worker: MakeWorker, aside: Callable[..., Future[None]]
) -> None:
    began, release = threading.Event(), threading.Event()
    tokens: list[int] = []

    def slow(run: Run) -> None:
        tokens.append(run.token)
        began.set()
        release.wait(PATIENCE_SECONDS)

    def expiry() -> float:
        with reading(engine) as connection:
            return float(connection.execute(text("SELECT expires_at FROM osrdyne_job_lock")).scalar_one())

    job = client.submit("plain", "r", {})
    handled = aside(make_worker(slow, lease=STEADY).handle, request())
    assert began.wait(PATIENCE_SECONDS)
    first = expiry()
    until(lambda: expiry() > first + STEADY, what="renewed leases")
    with engine.begin() as connection:
        assert scans.lose(connection, 10) == 0
    make_worker(slow, name="other").handle(request())
    release.set()
    handled.result(PATIENCE_SECONDS)
    assert (len(tokens), state(engine, job.id)) == (1, states.DONE)


def test_a_worker_that_lost_its_lease_hears_of_it_and_can_write_nothing(
    engine: Engine, client: JobClient, make_worker: MakeWorker, aside: Callable[..., Future[None]]
) -> None:
    runs: list[Run] = []
    fenced: list[str] = []
    taken = threading.Event()

    def slow(run: Run) -> None:
        runs.append(run)
        if len(runs) > 1:
            return
        assert taken.wait(PATIENCE_SECONDS)
        assert run.cancelled.wait(PATIENCE_SECONDS)
        try:
            with run.transaction():
                fenced.append("written")
        except LeaseLost:
            fenced.append("refused")

    job = client.submit("plain", "r", {})
    handled = aside(make_worker(slow, lease=SHORT_LEASE_SECONDS).handle, request())
    until(lambda: runs)
    # As if its process had slept until after the end of the lease
    with engine.begin() as connection:
        connection.execute(text("UPDATE osrdyne_job_lock SET expires_at = 0"))
        assert scans.lose(connection, 10) == 1
    make_worker(slow, name="other").handle(request())
    taken.set()
    handled.result(PATIENCE_SECONDS)
    assert (fenced, state(engine, job.id), len(runs)) == (["refused"], states.DONE, 2)
    assert runs[1].token > runs[0].token


def test_what_a_run_writes_in_its_transaction_is_there_when_it_is_done(
    engine: Engine, client: JobClient, make_worker: MakeWorker
) -> None:
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE result (n INTEGER)"))

    def write(run: Run) -> None:
        with run.transaction() as connection:
            connection.execute(text("INSERT INTO result VALUES (:n)"), run.payload)

    client.submit("plain", "r", {"n": 7})
    make_worker(write).handle(request())
    with reading(engine) as connection:
        assert connection.execute(text("SELECT n FROM result")).scalars().all() == [7]


def test_a_running_job_that_is_cancelled_hears_of_it(
    engine: Engine, client: JobClient, make_worker: MakeWorker, aside: Callable[..., Future[None]]
) -> None:
    began = threading.Event()

    def patient(run: Run) -> None:
        began.set()
        assert run.cancelled.wait(PATIENCE_SECONDS)
        raise JobCancelled

    job = client.submit("plain", "r", {})
    handled = aside(make_worker(patient, lease=SHORT_LEASE_SECONDS).handle, request())
    assert began.wait(PATIENCE_SECONDS)
    assert not client.cancel(job.id)
    handled.result(PATIENCE_SECONDS)
    assert state(engine, job.id) == states.CANCELLED


def test_a_job_whose_handler_stopped_because_its_lease_was_in_doubt_is_not_done(
    engine: Engine, client: JobClient, make_worker: MakeWorker
) -> None:
    class SilentDatabase:
        """A database that does not answer."""

        answers = threading.Event()

        def begin(self) -> Any:
            self.answers.wait(PATIENCE_SECONDS)
            return engine.begin()

    def obedient(run: Run) -> None:
        if run.attempt == 1:
            assert run.cancelled.wait(PATIENCE_SECONDS)

    job = client.submit("plain", "r", {})
    worker = make_worker(obedient, lease=SHORT_LEASE_SECONDS)
    worker._leases._engine = cast(Engine, SilentDatabase())
    try:
        worker.handle(request())
    finally:
        SilentDatabase.answers.set()
    with reading(engine) as connection:
        outcomes = [attempt["outcome"] for attempt in administration.attempts(connection, job.id)]
    assert outcomes == [states.CANCELLED, states.DONE]


def test_renewals_go_on_after_any_error(
    engine: Engine, client: JobClient, make_worker: MakeWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    renew, asked = running.renew, [0]

    def failing_first(*arguments: Any) -> Any:
        asked[0] += 1
        if asked[0] == 1:
            raise OverflowError
        return renew(*arguments)

    monkeypatch.setattr(running, "renew", failing_first)
    job = client.submit("plain", "r", {})
    make_worker(lambda _: until(lambda: asked[0] > 5), lease=SHORT_LEASE_SECONDS).handle(request())
    assert state(engine, job.id) == states.DONE


def test_a_worker_that_is_closed_begins_no_job_that_waits(
    engine: Engine, client: JobClient, make_worker: MakeWorker, aside: Callable[..., Future[None]]
) -> None:
    began, release = threading.Event(), threading.Event()

    def slow(run: Run) -> None:
        began.set()
        release.wait(PATIENCE_SECONDS)

    first, second = client.submit("plain", "r", {}), client.submit("plain", "r", {})
    worker = make_worker(slow)
    handled = aside(worker.handle, request())
    assert began.wait(PATIENCE_SECONDS)
    closed = aside(worker.close)
    until(worker._closing.is_set)
    release.set()
    handled.result(PATIENCE_SECONDS)
    closed.result(PATIENCE_SECONDS)
    assert (state(engine, first.id), state(engine, second.id)) == (states.DONE, states.REGISTERED)
    assert client.get(second.id).attempts == 0


def test_no_job_begins_while_the_only_thread_is_busy(
    engine: Engine, client: JobClient, make_worker: MakeWorker
) -> None:
    release = threading.Event()
    long, other = client.submit("plain", "r", {}), client.submit("single", "r", {})
    worker = make_worker(lambda _: release.wait(PATIENCE_SECONDS), held=0.1)
    worker.handle(request())
    worker.handle(request("single"))
    assert (state(engine, long.id), state(engine, other.id)) == (states.RUNNING, states.REGISTERED)
    release.set()
    until(lambda: state(engine, long.id) == states.DONE)
    worker.handle(request("single"))
    until(lambda: state(engine, other.id) == states.DONE)


class ErrorWithoutText(Exception):
    """An error that cannot say what it is."""

    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    "error, reason",
    [(ValueError("caf\udce9"), "ValueError: caf?"), (ErrorWithoutText(), "ErrorWithoutText")],
    ids=["text", "none"],
)
def test_a_handler_may_raise_what_cannot_be_written(
    client: JobClient, make_worker: MakeWorker, caplog: pytest.LogCaptureFixture, error: Exception, reason: str
) -> None:
    # Several processes of pytest cannot pass such a text to each other
    caplog.set_level(logging.CRITICAL, "osrdyne_jobs")

    def broken(run: Run) -> None:
        raise error

    job = client.submit("plain", "r", {})
    worker = make_worker(broken)
    worker.handle(request())
    assert (client.get(job.id).state, client.get(job.id).reason) == (states.FAILED, reason)
    assert not worker._leases._runs


def test_a_request_is_held_for_its_time_only_while_the_job_goes_on(
    engine: Engine, client: JobClient, make_worker: MakeWorker
) -> None:
    release = threading.Event()
    job, later = client.submit("plain", "r", {}), client.submit("plain", "r", {})
    make_worker(lambda _: release.wait(PATIENCE_SECONDS), held=0.1).handle(request())
    assert state(engine, job.id) == states.RUNNING
    release.set()
    until(lambda: state(engine, job.id) == states.DONE)
    assert state(engine, later.id) == states.REGISTERED


def test_a_payload_that_no_longer_fits_its_type_fails_its_job_and_not_the_next(
    engine: Engine, client: JobClient, make_worker: MakeWorker
) -> None:
    class Region(BaseModel):
        region: int

    old = client.submit("plain", "r", {"n": 1})
    fitting = client.submit("plain", "r", {"region": 1})
    regions: list[int] = []
    changed = JobType("plain", payload=Region)
    worker = JobWorker(engine, {changed: lambda run: regions.append(run.payload.region)}, lease=LONG)
    worker.handle(request())
    worker.close()
    assert (regions, state(engine, fitting.id)) == ([1], states.DONE)
    with reading(engine) as connection:
        assert "payload.region: Field required" in str(administration.get(connection, old.id).reason)


@pytest.mark.parametrize(
    "body, reason",
    [
        (b"\xff", "is not UTF-8"),
        (b"[]", 'no "type"'),
        (b'{"type": 3}', 'no "type"'),
        (b'{"type": "unheard of"}', "'unheard of' is unknown; known are: plain, single"),
    ],
)
def test_a_request_that_names_no_type_of_this_worker_is_rejected(
    make_worker: MakeWorker, body: bytes, reason: str
) -> None:
    with pytest.raises(Reject, match=reason):
        make_worker(print).handle(Request("r", body, {}, None, False, None))


def test_a_job_that_does_not_exist_is_not_an_error(make_worker: MakeWorker) -> None:
    runs: list[Run] = []
    make_worker(runs.append).handle(request())
    assert not runs


def test_a_worker_that_is_closed_finishes_the_job_in_hand(
    engine: Engine, client: JobClient, make_worker: MakeWorker
) -> None:
    release = threading.Event()
    job = client.submit("plain", "r", {})
    worker = make_worker(lambda _: release.wait(PATIENCE_SECONDS), held=0.1)
    worker.handle(request())
    threading.Timer(0.2, release.set).start()
    worker.close()
    assert state(engine, job.id) == states.DONE


def test_a_handler_hears_that_its_worker_stops_and_the_next_attempt_begins_at_once(
    engine: Engine, client: JobClient, make_worker: MakeWorker, aside: Callable[..., Future[None]]
) -> None:
    began = threading.Event()

    def slow(run: Run) -> None:
        began.set()
        if run.stopping.wait(PATIENCE_SECONDS):
            raise JobCancelled("half of it is done")

    job = client.submit("plain", "r", {})
    worker = make_worker(slow)
    aside(worker.handle, request())
    assert began.wait(PATIENCE_SECONDS)
    worker.close()
    assert "half of it is done" in str(client.get(job.id).reason)
    runs: list[Run] = []
    make_worker(runs.append).handle(request())
    assert [(run.attempt, run.stopping.is_set()) for run in runs] == [(2, False)]
    assert state(engine, job.id) == states.DONE


@pytest.mark.full
def test_the_outcome_of_a_job_waits_for_a_database_that_is_away(private_postgres: Any) -> None:
    private_postgres.create_database("jobs")
    engine = engine_for(private_postgres.url("jobs"))
    migrate(engine)
    client = JobClient(engine, [PLAIN])
    job = client.submit("plain", "r", {})

    def kills(run: Run) -> None:
        private_postgres.kill()
        threading.Timer(1.0, private_postgres.start).start()

    worker = JobWorker(engine, {PLAIN: kills}, lease=LONG, name=str(os.getpid()))
    worker.handle(request())
    worker.close()
    assert client.get(job.id).state == states.DONE
    engine.dispose()


def test_a_handler_does_not_begin_when_its_lease_may_have_ended_before(
    engine: Engine, client: JobClient, make_worker: MakeWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[int] = []
    job = client.submit("plain", "r", {})
    worker = make_worker(lambda run: ran.append(run.token), lease=STEADY)
    begin = worker._begin

    def begin_and_stand_still(named: str, resource: str) -> Run | None:
        begun = begin(named, resource)
        if begun is not None and not stood:
            stood.append(begun.token)
            # As if so much time had passed since the lease was asked for
            worker._leases.add(begun, asked=time.monotonic() - STEADY)
        return begun

    stood: list[int] = []
    monkeypatch.setattr(worker, "_begin", begin_and_stand_still)
    worker.handle(request())
    # The run ended without its handler, and the next one did the job.
    assert len(stood) == len(ran) == 1
    assert ran != stood
    assert (state(engine, job.id), client.get(job.id).attempts) == (states.DONE, 2)


def test_a_request_that_waited_for_a_thread_until_its_worker_was_closed_goes_back(
    engine: Engine, client: JobClient, make_worker: MakeWorker, aside: Callable[..., Future[None]]
) -> None:
    began, release = threading.Event(), threading.Event()
    client.submit("plain", "r", {})
    other = client.submit("single", "r", {})

    def slow(run: Run) -> None:
        began.set()
        release.wait(PATIENCE_SECONDS)

    worker = make_worker(slow)
    handled = [aside(worker.handle, request())]
    assert began.wait(PATIENCE_SECONDS)
    handled.append(aside(worker.handle, request("single")))
    until(lambda: waits_for_a_thread(worker))
    worker._closing.set()
    release.set()
    handled[0].result(PATIENCE_SECONDS)
    # The request is another worker's
    with pytest.raises(Requeue):
        handled[1].result(PATIENCE_SECONDS)
    assert client.get(other.id).attempts == 0


def test_a_worker_that_is_closed_gives_back_a_request_that_it_just_got(
    client: JobClient, make_worker: MakeWorker
) -> None:
    job = client.submit("plain", "r", {})
    worker = make_worker(lambda _: None)
    worker.close()
    with pytest.raises(Requeue):
        worker.handle(request())
    assert client.get(job.id).attempts == 0


def waits_for_a_thread(worker: JobWorker) -> bool:
    return bool(worker._free._cond._waiters)  # type: ignore[attr-defined]


# --- what is kept of a failure ------------------------------------------------------------------------------------


def last_run(engine: Engine, number: int) -> Mapping[str, Any]:
    with reading(engine) as connection:
        return administration.attempts(connection, number)[-1]


def test_the_traceback_of_a_failed_attempt_is_kept_and_says_where_it_was_raised(
    engine: Engine, client: JobClient, make_worker: MakeWorker
) -> None:
    def opens_the_map(_: Run) -> None:
        raise FileNotFoundError("data/XX.json")

    job = client.submit("plain", "r", {})
    make_worker(opens_the_map).handle(request())
    run = last_run(engine, job.id)
    assert run["reason"] == "FileNotFoundError: data/XX.json"
    assert "in opens_the_map" in run["traceback"]
    assert run["traceback"].endswith("FileNotFoundError: data/XX.json")


def test_an_attempt_that_is_done_has_no_traceback(engine: Engine, client: JobClient, make_worker: MakeWorker) -> None:
    job = client.submit("plain", "r", {})
    make_worker(lambda _: None).handle(request())
    assert last_run(engine, job.id)["traceback"] is None


def test_no_password_that_the_worker_was_given_is_kept(
    engine: Engine, client: JobClient, make_worker: MakeWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORKER_AMQP_URI", "amqp://worker:s%2Fecret@broker/core")

    def repeats_it(_: Run) -> None:
        raise ConnectionError("amqp://worker:s%2Fecret@broker says s/ecret")

    job = client.submit("plain", "r", {})
    make_worker(repeats_it).handle(request())
    run = last_run(engine, job.id)
    for said in (run["reason"], run["traceback"]):
        assert "amqp://worker:***@broker says ***" in said
        assert "s%2Fecret" not in said
        assert "s/ecret" not in said


def test_a_long_traceback_keeps_its_end_and_a_strange_one_can_be_stored(
    engine: Engine, client: JobClient, make_worker: MakeWorker
) -> None:
    def raises_much(_: Run) -> None:
        raise ValueError("x" * 100_000 + "\0\udcff the end")

    job = client.submit("plain", "r", {})
    make_worker(raises_much).handle(request())
    traceback = last_run(engine, job.id)["traceback"]
    assert len(traceback) == tracebacks.MOST
    assert traceback.startswith("... (the beginning is left out)\n")
    assert traceback.endswith(" the end")


def test_the_values_of_a_statement_are_not_kept(engine: Engine, client: JobClient, make_worker: MakeWorker) -> None:
    other = create_engine("sqlite://")

    def asks(_: Run) -> None:
        with other.connect() as connection:
            connection.execute(text("SELECT * FROM nowhere WHERE pin = :pin"), {"pin": "4711"})

    job = client.submit("plain", "r", {})
    make_worker(asks).handle(request())
    traceback = last_run(engine, job.id)["traceback"]
    assert "no such table: nowhere" in traceback
    assert "('4711',)" not in traceback


@pytest.mark.parametrize(
    "wrapped",
    [
        pytest.param(lambda error: error, id="itself"),
        pytest.param(lambda error: ExceptionGroup("two", [ExceptionGroup("inner", [error]), OSError()]), id="a group"),
        pytest.param(lambda error: RuntimeError(f"not written: {error}, {error.orig}"), id="its text in another's"),
    ],
)
def test_the_values_of_a_row_that_was_refused_are_not_kept_however_its_error_is_raised(
    engine: Engine, client: JobClient, make_worker: MakeWorker, wrapped: Callable[[IntegrityError], Exception]
) -> None:
    engine.hide_parameters = False

    def writes(_: Run) -> None:
        try:
            with engine.begin() as connection:
                connection.execute(text("CREATE TABLE seats (pin TEXT, free INT CHECK (free > 0))"))
                connection.execute(text("INSERT INTO seats VALUES (:pin, 0)"), {"pin": f"{4 * 1000}\u2028{7 * 1000}"})
        except IntegrityError as error:
            raise wrapped(error) from error.orig

    job = client.submit("plain", "r", {})
    make_worker(writes).handle(request())
    run = last_run(engine, job.id)
    assert "check constraint" in run["traceback"].lower()
    for said in (run["reason"], run["traceback"]):
        assert "4000" not in said
        assert "7000" not in said


def test_the_values_that_a_driver_says_itself_are_not_kept(
    engine: Engine, client: JobClient, make_worker: MakeWorker
) -> None:
    def writes(_: Run) -> None:
        raise CheckViolation("a row violates a constraint\nDETAIL:  Failing row contains (1, alice, 4711).")

    job = client.submit("plain", "r", {})
    make_worker(writes).handle(request())
    run = last_run(engine, job.id)
    assert run["reason"] == "CheckViolation: a row violates a constraint"
    assert run["traceback"].endswith("CheckViolation: a row violates a constraint")


def test_a_password_is_found_wherever_an_address_has_it() -> None:
    addresses = [
        "postgresql://a:x%40y@db,db2/jobs",
        "postgresql:///jobs?user=a&password=p%26q&sslpassword=of+a+key&passfile=/f",
        "sqlite:////a",
        None,
    ]
    assert tracebacks.passwords(addresses) == {"x%40y", "x@y", "p%26q", "p&q", "of+a+key"}


def test_the_present_password_of_an_engine_is_masked_and_the_one_that_libpq_reads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PGPASSWORD", "for-libpq")
    passwords = ["first", "second"]
    own = engine_for(lambda: f"postgresql://a:{passwords.pop(0)}@nowhere/jobs")
    assert tracebacks.secrets_of(own) == {"second", "for-libpq"}
    assert tracebacks.secrets_of(own) == {"for-libpq"}  # where its function raises, the rest is masked


def test_an_exception_that_cannot_be_shown_fails_its_attempt_all_the_same(
    engine: Engine, client: JobClient, make_worker: MakeWorker
) -> None:
    class Odd(Exception):
        @property
        def exceptions(self) -> list[Exception]:
            raise ValueError("none of yours")

    def raises(_: Run) -> None:
        raise Odd

    job = client.submit("plain", "r", {})
    make_worker(raises).handle(request())
    assert last_run(engine, job.id)["outcome"] == states.FAILED
