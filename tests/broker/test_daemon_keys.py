"""Any key gets its own group and its own answer; a key that no worker can be given is answered and starts nothing."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator

import pytest

from osrdyne_protocol.worker_environment import WorkerEnvironment
from testbed.foreign_client import ForeignClient
from testbed.pool import DaemonProcess, Pool
from testbed.waiting import PATIENCE_SECONDS, until
from testbed.workers import MINIMAL
from tests.hard_keys import KEYS

MakePool = Callable[..., Pool]
MakeDaemon = Callable[..., DaemonProcess]
MakeClient = Callable[[Pool], ForeignClient]


def ask_all(client: ForeignClient) -> dict[str, bytes]:
    ids = {key: client.send(key, b"hello") for key in KEYS}
    answers = client.wait(*ids.values())
    assert all(answer.status == "ok" for answer in answers)
    return {key: answer.body for key, answer in zip(ids, answers, strict=True)}


def own_answers() -> dict[str, bytes]:
    return {key: key.encode() + b"|hello" for key in KEYS}


@pytest.mark.fast
def test_every_key_gets_its_own_group_and_answer_and_keeps_both_over_a_daemon_restart(
    make_pool: MakePool, make_daemon: MakeDaemon, make_client: MakeClient
) -> None:
    pool = make_pool(name="p" * 63)
    daemon = make_daemon(pool, worker=MINIMAL)
    client = make_client(pool)
    # When each key is asked for the first time
    assert ask_all(client) == own_answers()
    # Then there is one worker for each
    before = sorted(daemon.worker_pids())
    assert len(before) == len(KEYS)
    # And after a restart of the daemon, the same workers answer, and the daemon knows every key
    assert daemon.stop() == 0
    daemon.start()
    assert {key["key"] for key in daemon.status()["keys"]} == set(KEYS)
    assert ask_all(client) == own_answers()
    assert sorted(daemon.worker_pids()) == before


@pytest.fixture
def run_worker() -> Iterator[Callable[[Pool, str], None]]:
    """Starts workers by hand, as users of the noop driver do."""
    processes: list[subprocess.Popen[bytes]] = []

    def run(pool: Pool, key: str) -> None:
        environment = WorkerEnvironment(
            f"by-hand-{len(processes)}",
            key,
            pool.names.pool,
            pool.names.request_queue(key),
            pool.names.activity_exchange,
            pool.uri(pool.users.worker),
        )
        processes.append(subprocess.Popen(MINIMAL, env=environment.to_environ(), stderr=subprocess.DEVNULL))

    yield run
    for process in processes:
        process.terminate()
    for process in processes:
        process.wait(timeout=PATIENCE_SECONDS)


def test_every_key_gets_its_queue_when_others_run_the_workers(
    make_pool: MakePool, make_daemon: MakeDaemon, make_client: MakeClient, run_worker: Callable[[Pool, str], None]
) -> None:
    pool = make_pool()
    daemon = make_daemon(pool)
    client = make_client(pool)
    ids = {key: client.send(key, b"hello") for key in KEYS}
    until(lambda: {pool.names.request_queue(key) for key in KEYS} <= pool.queues(), what="queues")
    for key in KEYS:
        run_worker(pool, key)
    answers = dict(zip(ids, client.wait(*ids.values()), strict=True))
    assert {key: answer.body for key, answer in answers.items()} == own_answers()
    # And after a daemon restart
    daemon.stop()
    daemon.start()
    assert ask_all(client) == own_answers()


@pytest.mark.parametrize("key", [b"a\0b", b"\xff\xfe"], ids=["NUL", "not UTF-8"])
def test_a_key_that_no_worker_can_be_given_is_answered_and_starts_nothing(
    make_pool: MakePool, make_daemon: MakeDaemon, make_client: MakeClient, key: bytes
) -> None:
    pool = make_pool()
    daemon = make_daemon(pool, worker=MINIMAL)
    client = make_client(pool)
    before = pool.queues()
    answer = client.ask(key, b"hello")
    assert answer.status == "invalid_key"
    assert answer.correlation_id == "1"
    assert client.ask("good").status == "ok"
    assert pool.queues() - before == {pool.names.request_queue("good")}
    assert len(daemon.worker_pids()) == 1
