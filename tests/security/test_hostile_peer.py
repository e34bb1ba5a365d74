"""A hostile peer that stays, over AMQP 1.0, raw frames of AMQP 0-9-1 and HTTP, beside honest callers of a real daemon.

What it sends is generated from a seed, which is in the name of the test: `FIRST=N make test-all` repeats it.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import strategies as st

from osrdyne_client import Client
from osrdyne_client.errors import ConnectionLost, ReplyAddressLost
from osrdyne_pipeline.source.datasource import StreamBatchReader
from osrdyne_pipeline.source.options import SourceOptions
from testbed.command_line import CommandResult, osrdyne
from testbed.hostile import amqp_1_0, frames, http
from testbed.hostile.chance import NAMES, drawn
from testbed.hostile.sending import ask, send_frames, send_messages
from testbed.pool import DaemonProcess, Pool
from testbed.suite import examples
from testbed.waiting import PATIENCE_SECONDS, until
from testbed.workers import LIBRARY
from tests.simulation.many_seeds import first_seed

pytestmark = [pytest.mark.both_versions, pytest.mark.parametrize("seed", [first_seed()])]

#: Valid keys are few, because each costs a worker. No worker can be given the others.
KEYS = st.sampled_from(["42", "43", "x/y", "é"]) | NAMES.map("\0{}".format)
WARM, COLD = "honest", ("cold", "e\u0301", "k" * 255)
#: So many calls reach each of the keys.
ROUND = 10 * len(COLD)
#: Stands for the name of a reply queue, which is as long.
PLACE = b"?" * len("reply-core-client-01234567-") + b"?" * 32
#: Of the status endpoints.
PATHS = ["/status", "/metrics", "/healthz", "/readyz"]


@pytest.fixture
def pool(make_pool: Callable[..., Pool]) -> Pool:
    """A pool that parks within seconds what cannot be delivered."""
    pool = make_pool(delivery_limit=2)
    pool.limit_deliveries(pool.names.orphan_queue, 2)
    pool.limit_deliveries(pool.names.dead_letter_queue, 3)
    return pool


@pytest.fixture
def daemon(pool: Pool, make_daemon: Callable[..., DaemonProcess]) -> DaemonProcess:
    return make_daemon(pool, worker=LIBRARY)


@contextmanager
def honest(pool: Pool) -> Iterator[None]:
    """Call a warm key and cold ones within the block, and see that each call is answered."""
    stop = threading.Event()

    def call() -> int:
        with Client(pool.client_uri, pool.settings.name) as client:
            count = 0
            while not stop.wait(0.02) or count < ROUND:
                key = COLD[count // 10 % len(COLD)] if count % 10 == 5 else WARM
                assert client.call(key, b"%d" % count, timeout=PATIENCE_SECONDS).body == f"{key}|{count}".encode()
                count += 1
            return count

    with ThreadPoolExecutor(1) as threads:
        calling = threads.submit(call)
        try:
            yield
        finally:
            stop.set()
            assert calling.result() >= ROUND


def attack(uri: str, addressed: list[tuple[str, bytes]], raw: list[bytes], port: int, requests: list[bytes]) -> None:
    """Send all of it, side by side."""
    with ThreadPoolExecutor(3) as threads:
        messages = threads.submit(send_messages, uri, sorted(addressed))
        framed = threads.submit(send_frames, uri, raw)
        for request in requests:
            answer = ask("127.0.0.1", port, request)
            assert answer == b"" or answer.startswith(b"HTTP/1."), answer
            assert b"Traceback" not in answer
        framed.result()
        # The broker takes enough of them.
        assert messages.result() > len(addressed) // 4


def port_of(daemon: DaemonProcess) -> int:
    return int(daemon.url.rpartition(":")[2])


def is_drained(pool: Pool) -> bool:
    """Whether nothing waits: all was answered, kept or parked."""
    names = pool.names
    kept = {names.poison_queue, names.unanswered_queue, names.parked_queue, names.events_stream}
    return not any(pool.depth(queue) for queue in pool.queues() - kept if not queue.startswith("reply-"))


def assert_unharmed(daemon: DaemonProcess) -> None:
    """See that the daemon led all the time, and that nothing surprised it or a worker."""
    assert daemon.status()["state"] == "leading"
    assert daemon.sessions_ended() == 0
    assert [line for line in daemon.lines() if "exception" in line] == []
    for output in (daemon.directory / "state").rglob("*.log"):
        assert "Traceback" not in output.read_text(errors="replace"), output.read_text(errors="replace")
    assert osrdyne("status", "--url", daemon.url).code == 0


def inventory(pool: Pool, directory: Path) -> CommandResult:
    uri = directory / "operator.uri"
    uri.write_text(pool.uri(pool.users.operator))
    return osrdyne("poison", "list", "--pool", "core", "--broker-file", str(uri), "--json")


def test_a_client_stops_nothing_and_what_was_kept_of_it_is_shown(
    pool: Pool, daemon: DaemonProcess, seed: int, tmp_path: Path
) -> None:
    exchange, count = pool.names.request_exchange, examples(400)
    replies = [f"/queues/{name}" for name in (pool.names.orphan_queue, pool.names.poison_queue, "core-req-42")]
    sent = drawn(st.tuples(KEYS, amqp_1_0.everything(replies)), seed, count)
    addressed = [(f"/exchanges/{exchange}/{quote(key, safe='')}", data) for key, data in sent]
    keys = KEYS.map(lambda key: key.encode())
    raw = drawn(frames.messages(exchange, keys) | frames.broken(exchange), seed, count)

    with honest(pool):
        attack(pool.client_uri, addressed, raw, port_of(daemon), drawn(http.requests(PATHS), seed, count))
        until(lambda: is_drained(pool), what="queues without messages")

    assert_unharmed(daemon)
    done = inventory(pool, tmp_path)
    assert done.code == 0, done
    kept = [pool.depth(queue) or 0 for queue in (pool.names.poison_queue, pool.names.unanswered_queue)]
    assert len(json.loads(done.out)["entries"]) == sum(kept) > 0


def test_a_worker_stops_nothing_that_it_cannot_take_away(
    pool: Pool, daemon: DaemonProcess, seed: int, tmp_path: Path
) -> None:
    names, count = pool.names, examples(400)
    queues = [names.orphan_queue, names.dead_letter_queue, names.activity_queue, names.leader_queue]
    queues += [
        names.poison_queue,
        names.unanswered_queue,
        names.events_stream,
        names.request_queue("42"),
        "reply-unread",
    ]
    to = st.sampled_from(
        [f"/queues/{quote(queue, safe='')}" for queue in queues] + [f"/exchanges/{names.activity_exchange}/42"]
    )
    addressed = drawn(st.tuples(to, amqp_1_0.everything([f"/queues/{queue}" for queue in queues])), seed, count)
    # To the default exchange, which has each queue by its name.
    keys = st.sampled_from([queue.encode() for queue in queues])
    raw = drawn(frames.messages("", keys) | frames.messages(names.activity_exchange) | frames.broken(""), seed, count)

    with honest(pool):
        attack(pool.uri(pool.users.worker), addressed, raw, port_of(daemon), [])
        until(lambda: is_drained(pool), what="queues without messages")

    assert_unharmed(daemon)
    # It can hide the inventory, which says so and what to do.
    done = inventory(pool, tmp_path)
    assert done.code == 0 or "client of AMQP 1.0" in done.line, done
    assert_all_is_read(pool, tmp_path)


@pytest.mark.full
def test_callers_go_on_whatever_replies_a_worker_sends_them(
    pool: Pool, daemon: DaemonProcess, seed: int, tmp_path: Path
) -> None:
    uri = tmp_path / "client.uri"
    uri.write_text(pool.client_uri)
    worker, stop = pool.uri(pool.users.worker), threading.Event()
    sent = drawn(amqp_1_0.everything([f"/queues/{pool.names.orphan_queue}"]), seed, examples(160))
    raw = drawn(frames.messages("", st.just(PLACE)) | frames.broken(""), seed, examples(160))

    def call() -> int:
        """A program that goes on calling; return how many answers it got."""
        with Client(pool.client_uri, pool.settings.name) as client:
            count = 0
            while not stop.is_set() or not count:
                # A broken reply costs the calls in flight, which say so, and a call that saw three of them.
                with suppress(ReplyAddressLost, ConnectionLost):
                    assert client.call(WARM, b"%d" % count, timeout=PATIENCE_SECONDS).body == f"{WARM}|{count}".encode()
                    count += 1
            assert client.call(WARM, b"at last", timeout=PATIENCE_SECONDS).body == f"{WARM}|at last".encode()
            return count

    def run() -> int:
        """The command, again and again; return how many answers it got."""
        count = 0
        while not stop.is_set() or not count:
            done = osrdyne("call", "--pool", "core", "--broker-file", str(uri), "--timeout", "60", WARM, "hello")
            assert done.code in (0, 2), done
            assert (done.out == f"{WARM}|hello".encode()) == (done.code == 0), done
            causes = ("the reply for key 'honest' cannot arrive any more", "the broker closed the connection")
            assert done.code == 0 or any(text in done.line for text in causes), done
            count += done.code == 0
        return count

    def found() -> set[str]:
        """Reply queues that were not there before, and else those that were attacked last."""
        theirs = {queue for queue in pool.queues() if queue.startswith(f"reply-{pool.users.client}-")}
        return theirs - known or theirs & last

    known, last = set[str](), set[str]()
    with ThreadPoolExecutor(2) as threads:
        calling, running = threads.submit(call), threads.submit(run)
        try:
            for at in range(0, len(sent), 10):
                last = set(sorted(until(found, what="reply queues"))[:2])
                known |= last
                send_messages(worker, [(f"/queues/{queue}", data) for queue in last for data in sent[at : at + 10]])
                send_frames(
                    worker, [data.replace(PLACE, queue.encode()) for queue in last for data in raw[at : at + 10]]
                )
        finally:
            stop.set()
        assert calling.result() > 0
        assert running.result() > 0
    assert_unharmed(daemon)


def assert_all_is_read(pool: Pool, directory: Path) -> None:
    """See that the pipeline gets a row for what it can read, and for what it cannot, to the end of the stream."""
    uri = directory / "events.uri"
    uri.write_text(pool.uri(pool.users.monitor))
    reader = StreamBatchReader(SourceOptions.of({"pool": "core", "uri_file": str(uri), "readers": "1"}))
    (part,) = reader.partitions()
    rows = [row for batch in reader.read(part) for row in batch.to_pylist()]
    assert any(row["problem"] for row in rows)
    assert {WARM, *COLD} <= {row["key"] for row in rows if not row["problem"]}
