"""What one scan of redo does, on both databases, with a pool that takes casts or refuses them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import Engine, insert, update
from sqlalchemy.exc import OperationalError

from osrdyne_amqp.errors import BrokerUnreachable
from osrdyne_calls.errors import CallTimeout, StartFailed
from osrdyne_calls.waits import Wait
from osrdyne_client.errors import ClientClosed
from osrdyne_jobs import JobClient, JobType, Redo, RedoSettings, states
from osrdyne_jobs import redo as redo_module
from osrdyne_jobs.database.engines import engine_for, migrate
from osrdyne_jobs.database.tables import job
from osrdyne_jobs.store import records, running, scans
from testbed.waiting import PATIENCE_SECONDS, until

PLAIN = JobType("plain")
LONG = 3600.0


class Pool:
    """Takes casts; `away` fails them."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.away = self.closed = False
        #: Keys of calls, and how these end.
        self.called: list[str] = []
        self.answer: Exception | None = None

    def start_cast(self, key: str, body: bytes, *, timeout: float | None = None) -> Future[None]:
        if self.closed:
            raise ClientClosed
        future: Future[None] = Future()
        if self.away:
            future.set_exception(BrokerUnreachable("nothing listens there"))
        else:
            self.keys.append(key)
            future.set_result(None)
        return future

    def submit(self, key: str, body: bytes, *, timeout: float | None = None) -> Future[None]:
        future: Future[None] = Future()
        self.called.append(key)
        if self.answer is not None:
            future.set_exception(self.answer)
        return future


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    made = engine_for(database_url)
    migrate(made)
    yield made
    made.dispose()


@pytest.fixture
def pool() -> Pool:
    return Pool()


@pytest.fixture
def client(engine: Engine) -> JobClient:
    return JobClient(engine, [PLAIN], cast_after=-1.0)


def redo(engine: Engine, pool: Pool, name: str = "a", **settings: Any) -> Redo:
    return Redo(engine, pool, RedoSettings(**{"alive_interval": LONG, **settings}), name=name)


def test_a_job_that_was_never_cast_is_cast_once_and_again_when_its_pause_is_over(
    engine: Engine, client: JobClient, pool: Pool
) -> None:
    number = client.submit("plain", "r", {}).id
    one = redo(engine, pool)
    assert [one.scan().casts for _ in range(3)] == [1, 0, 0]
    with engine.begin() as connection:
        connection.execute(update(job).where(job.c.id == number).values(due_at=0))
    assert one.scan().casts == 1
    assert pool.keys == ["r", "r"]


def test_a_million_due_jobs_are_cast_in_batches_and_no_scan_floods_the_broker(
    engine: Engine, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given more due jobs than a scan may cast, and not a million, which is for the benchmark
    values = {"type": "plain", "payload": "{}", "coalesce": False, "state": states.REGISTERED, "max_attempts": 3}
    rows = [{**values, "resource": f"r{n}", "registered_at": n, "begin_after": n, "due_at": n} for n in range(250)]
    with engine.begin() as connection:
        connection.execute(insert(job), rows)
    batches: list[int] = []
    cast_due = scans.cast_due

    def noting(connection: Any, *, most: int, pause: float) -> tuple[int, list[records.Hint]]:
        batches.append(most)
        return cast_due(connection, most=most, pause=pause)

    monkeypatch.setattr(scans, "cast_due", noting)
    one = redo(engine, pool, batch=20, most=100)
    assert [one.scan().casts for _ in range(4)] == [100, 100, 50, 0]
    assert pool.keys == [f"r{n}" for n in range(250)]
    assert max(batches) == 20


def test_many_jobs_of_one_resource_need_one_cast_of_a_batch(engine: Engine, client: JobClient, pool: Pool) -> None:
    for _ in range(30):
        client.submit("plain", "r", {})
    scan = redo(engine, pool, batch=1000).scan()
    assert (scan.due, pool.keys) == (30, ["r"])


def test_what_the_broker_does_not_take_is_counted_and_cast_in_the_next_scan(
    engine: Engine, client: JobClient, pool: Pool
) -> None:
    for resource in "abc":
        client.submit("plain", resource, {})
    pool.away = True
    one = redo(engine, pool, batch=1, interval=0.0, pause=LONG)
    scan = one.scan()
    # The first batch fails as a whole, so the others are not tried
    assert (scan.casts, scan.not_cast) == (0, 1)
    pool.away = False
    scan = one.scan()
    assert (scan.casts, scan.not_cast, sorted(pool.keys)) == (3, 0, ["a", "b", "c"])


def test_it_ends_when_its_client_was_closed(engine: Engine, client: JobClient, pool: Pool) -> None:
    client.submit("plain", "r", {})
    pool.closed = True
    with pytest.raises(ClientClosed):
        redo(engine, pool).run(threading.Event())


def test_after_an_outage_of_the_database_workers_get_time_to_renew_their_leases(
    engine: Engine, client: JobClient, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.submit("plain", "r", {})
    with engine.begin() as connection:
        assert running.begin(connection, type="plain", resource="r", worker="w", lease=0.0)
    one, stop = redo(engine, pool, interval=0.0), threading.Event()

    def away(connection: Any, **_: Any) -> bool:
        stop.set()
        raise OperationalError("", {}, Exception("the server closed the connection"))

    with monkeypatch.context() as broken:
        broken.setattr(scans, "lead", away)
        one.run(stop)
    assert one.scan().lost == 0
    assert redo(engine, pool).scan().lost == 1


def test_a_standby_does_nothing_until_the_leader_is_gone(engine: Engine, client: JobClient, pool: Pool) -> None:
    leader, standby = redo(engine, pool, "a"), redo(engine, pool, "b")
    assert leader.scan().leading
    client.submit("plain", "r", {})
    scan = standby.scan()
    assert (scan.leading, scan.casts, pool.keys) == (False, 0, [])
    stop = threading.Event()
    stop.set()
    leader.run(stop)  # which ends at once, and resigns
    assert standby.scan().casts == 1


def test_the_jobs_of_a_dead_worker_are_cast_in_the_scan_that_finds_it(
    engine: Engine, client: JobClient, pool: Pool
) -> None:
    client.submit("plain", "r", {})
    with engine.begin() as connection:
        assert running.begin(connection, type="plain", resource="r", worker="dead", lease=0.0)
    scan = redo(engine, pool).scan()
    assert (scan.lost, scan.casts, pool.keys) == (1, 1, ["r"])


def test_a_job_that_runs_keeps_its_group_in_use_by_a_cast_now_and_then(
    engine: Engine, client: JobClient, pool: Pool
) -> None:
    for resource in "abc":
        client.submit("plain", resource, {})
        with engine.begin() as connection:
            running.begin(connection, type="plain", resource=resource, worker="w", lease=LONG)
    redo(engine, pool, batch=2).scan()
    assert pool.keys == []  # they have not run for long
    one = redo(engine, pool, batch=2, alive_interval=0.0)
    one.scan()
    assert pool.keys == ["a", "b", "c"]


def test_finished_jobs_are_archived_and_deleted(engine: Engine, client: JobClient, pool: Pool) -> None:
    for number in range(5):
        client.cancel(client.submit("plain", str(number), {}).id)
    one = redo(engine, pool, batch=2, archive_after=-1.0, keep=LONG)
    assert one.scan().archived == 5
    scan = redo(engine, pool, batch=2, archive_after=-1.0, keep=-1.0).scan()
    assert (scan.archived, scan.deleted) == (0, 5)


def test_a_stop_ends_a_scan_between_two_batches(
    engine: Engine, client: JobClient, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for resource in "abc":
        client.submit("plain", resource, {})
    stop = threading.Event()
    start_cast = pool.start_cast

    def stopping(key: str, body: bytes, *, timeout: float | None = None) -> Future[None]:
        stop.set()
        return start_cast(key, body, timeout=timeout)

    monkeypatch.setattr(pool, "start_cast", stopping)
    redo(engine, pool, batch=1).run(stop)
    assert pool.keys == ["a"]


def test_a_leader_whose_casts_do_not_get_through_for_longer_than_its_lease_lets_a_standby_lead(
    engine: Engine, client: JobClient, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a broker that only the leader cannot reach
    client.submit("plain", "r", {})
    cut_off = Pool()
    cut_off.away = True
    time = [0.0]
    monkeypatch.setattr(redo_module, "time", SimpleNamespace(monotonic=lambda: time[0]))
    leader, standby = (
        redo(engine, connection, name, lease=LONG, interval=0.0) for connection, name in ((cut_off, "a"), (pool, "b"))
    )
    assert leader.scan().leading
    time[0] = LONG
    assert (leader.scan().leading, standby.scan().leading) == (True, False)
    # When its lease has passed without a cast
    time[0] = LONG + 1
    assert not leader.scan().leading
    # Then the standby leads, and the former leader does not take it back
    assert not leader.scan().leading
    assert standby.scan().casts == 1
    time[0] = 3 * LONG
    assert not leader.scan().leading


def test_it_runs_until_it_is_stopped_and_logs_an_outage_once(
    engine: Engine, client: JobClient, pool: Pool, caplog: pytest.LogCaptureFixture
) -> None:
    pool.away = True
    stop = threading.Event()
    thread = threading.Thread(target=redo(engine, pool, interval=0.01, pause=0.0).run, args=(stop,))
    client.submit("plain", "r", {})
    thread.start()
    try:
        until(lambda: outages(caplog))
        pool.away = False
        until(lambda: pool.keys)
    finally:
        stop.set()
        thread.join(PATIENCE_SECONDS)
    assert outages(caplog) == 1
    with engine.begin() as connection:
        assert scans.lead(connection, holder="other", lease=1.0)


def outages(caplog: pytest.LogCaptureFixture) -> int:
    """Return how often redo said that it cannot cast."""
    return sum(said.startswith("the broker cannot be used") for said in caplog.messages)


def test_what_was_cast_in_vain_is_called_for_and_its_job_keeps_why_it_was_not_served(
    engine: Engine, client: JobClient, pool: Pool
) -> None:
    number = client.submit("plain", "r", {}).id
    pool.answer = StartFailed("start_failed: no file (correlation id 7)", correlation_id="7")
    one = redo(engine, pool, pause=0.0)
    one.scan()
    assert (pool.keys, pool.called) == (["r"], [])
    one.scan()
    assert (pool.keys, pool.called) == (["r", "r"], ["r"])
    assert client.get(number).reason == "start_failed: no file"
    # When a worker begins it, that is over
    with engine.begin() as connection:
        assert running.begin(connection, type="plain", resource="r", worker="w", lease=LONG) is not None
    assert client.get(number).reason is None


@pytest.mark.parametrize(
    ("wait", "why"),
    [
        (Wait.CONFIRMED, "no worker began it within 0.001 s: `osrdyne status --key 'a r'` says what its workers do"),
        (Wait.CONNECTING, None),
        (Wait.BLOCKED, None),
    ],
)
def test_a_job_that_no_worker_began_says_where_to_look_and_one_that_was_not_sent_does_not(
    engine: Engine, client: JobClient, pool: Pool, wait: Wait, why: str | None
) -> None:
    number = client.submit("plain", "a r", {}).id
    pool.answer = CallTimeout("no reply", wait=wait)
    one = redo(engine, pool, pause=0.001)
    until(lambda: (one.scan(), pool.called)[1])
    one.scan()
    assert client.get(number).reason == why


def test_the_reason_of_an_attempt_stays_and_a_call_that_waits_is_not_repeated(
    engine: Engine, client: JobClient, pool: Pool
) -> None:
    number = client.submit("plain", "r", {}).id
    with engine.begin() as connection:
        connection.execute(update(job).values(state=states.FAILED, reason="it failed"))
    one = redo(engine, pool, pause=0.0)
    for _ in range(4):
        one.scan()
    assert pool.called == ["r"]
    pool.answer = StartFailed("start_failed: no file")
    redo(engine, pool, "a", pause=0.0).scan()
    assert client.get(number).reason == "it failed"


def test_a_reason_is_kept_until_the_database_can_be_written(
    engine: Engine, client: JobClient, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = client.submit("plain", "r", {}).id
    pool.answer = StartFailed("start_failed: no file")
    one = redo(engine, pool, pause=0.0)

    def busy(*_: Any, **__: Any) -> None:
        raise OperationalError("", {}, Exception("database is locked"))

    one.scan()
    with monkeypatch.context() as broken:
        broken.setattr(scans, "refuse", busy)
        with pytest.raises(OperationalError):
            one.scan()
    with engine.begin() as connection:
        connection.execute(update(job).values(due_at=2e9 * 2))  # not due, so not called again
    one.scan()
    assert client.get(number).reason == "start_failed: no file"
