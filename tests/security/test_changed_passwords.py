"""A password that is changed at the broker while everything runs costs no request and no restart."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from pathlib import Path

import pytest

from osrdyne_amqp.address import from_file
from osrdyne_amqp.errors import AccessRefused
from osrdyne_client import Client, Reply
from osrdyne_pool.broker.management import ManagementRefused
from osrdyne_pool.topology import request_queue_arguments, topology
from osrdyne_worker import Request, WorkerEnvironment, loop, serve
from testbed.pool import DaemonProcess, Pool
from testbed.waiting import PATIENCE_SECONDS, until
from testbed.workers import LIBRARY

pytestmark = pytest.mark.both_versions

MakePool = Callable[..., Pool]
MakeDaemon = Callable[..., DaemonProcess]

KEYS = ("a", "b", "c")


def connections(pool: Pool, user: str) -> list[str]:
    listed = pool.broker.management.get("vhosts", pool.vhost, "connections")
    return [connection["name"] for connection in listed if connection["user"] == user]


def change_password(pool: Pool, user: str, password: str, expected: int) -> None:
    """A new password at the broker. It ends no connection, so those of this user, as many as expected, are closed.

    A worker has two, one of them for its events. A daemon also has one for each queue that it consumes.
    """

    def all_listed() -> list[str] | None:
        found = connections(pool, user)
        return found if len(found) == expected else None

    old = until(all_listed, what=f"{expected} connections of {user}")
    tags = next(declared.tags for declared in topology(pool.settings, pool.users).users if declared.name == user)
    pool.broker.management.put("users", user, body={"password": password, "tags": ",".join(tags)})
    pool.passwords[user] = password
    for name in old:
        with contextlib.suppress(ManagementRefused):
            pool.broker.management.delete("connections", name)


def write(path: Path, text: str) -> None:
    """Replace a credential file at once, as people should."""
    fresh = path.with_suffix(".new")
    fresh.touch(mode=0o600)
    fresh.write_text(text)
    fresh.replace(path)


class Load:
    """A request every few milliseconds, in turn to every key, as long as fewer than 500 are not answered."""

    def __init__(self, client: Client) -> None:
        self.sent: list[tuple[str, bytes, Future[Reply]]] = []
        self._client = client
        self._room = threading.Semaphore(500)
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        numbers = itertools.count()
        while not self._end.wait(0.005):
            if self._room.acquire(timeout=0.1):
                number = next(numbers)
                key, body = KEYS[number % len(KEYS)], b"%d" % number
                reply = self._client.submit(key, body, timeout=90)
                reply.add_done_callback(lambda _: self._room.release())
                self.sent.append((key, body, reply))

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def more(self) -> None:
        """Wait until requests that are sent from now on were answered."""
        first = len(self.sent)
        until(lambda: len(self.sent) > first + 30, what="requests")
        for _, _, reply in self.sent[first : first + 30]:
            reply.result(90)


@pytest.mark.parametrize("order", [pytest.param("file first", marks=pytest.mark.full), "broker first"])
def test_every_password_is_changed_under_load_and_no_request_is_lost(
    make_pool: MakePool, make_daemon: MakeDaemon, tmp_path: Path, order: str
) -> None:
    pool = make_pool()
    daemon = make_daemon(pool, worker=LIBRARY)
    users, client_file = pool.users, tmp_path / "client.uri"
    write(client_file, pool.client_uri)
    with Client(from_file(client_file), "core") as client:
        with Load(client) as load:
            load.more()
            workers = daemon.worker_pids()
            for user, file in (
                (users.daemon, daemon.directory / "amqp.uri"),
                (users.worker, daemon.directory / "worker.uri"),
                (users.client, client_file),
            ):
                password = f"changed-{user}"
                new = [(file, pool.broker.amqp_uri(user, password, pool.vhost))]
                if user == users.daemon:
                    https = pool.broker.management_url.replace("://", f"://{user}:{password}@")
                    new.append((daemon.directory / "management.uri", https))
                if order == "file first":
                    for path, text in new:
                        write(path, text)
                expected = {users.daemon: 5, users.worker: 2 * len(KEYS), users.client: 1}
                change_password(pool, user, password, expected[user])
                if order == "broker first":
                    until(partial(refused, pool, user), what=f"refusal of {user}")
                    for path, text in new:
                        write(path, text)
                daemon.wait_for("leading")
                load.more()
            # And a key without requests until now is served: by a new worker, with the new password
            assert client.call("cold", b"x", timeout=60).body == b"cold|x"
        results = [(reply.result(90).body, key.encode() + b"|" + body) for key, body, reply in load.sent]
    assert all(body == expected for body, expected in results)
    assert set(workers) <= set(daemon.worker_pids())
    listing = daemon.status()["keys"]
    assert {entry["key"] for entry in listing} == {*KEYS, "cold"}


def refused(pool: Pool, user: str) -> bool:
    """Whether the broker's log says that it refused the user."""
    log = (pool.broker.directory / "log/broker.log").read_text(errors="replace")
    return f"user '{user}' - invalid credentials" in log


async def test_a_worker_that_knows_no_file_ends_so_that_it_is_started_with_the_new_password(
    make_pool: MakePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = make_pool()
    worker = await serving(pool, None)
    monkeypatch.setattr(loop, "REFUSED_PATIENCE_SECONDS", 0.5)

    await asyncio.to_thread(change_password, pool, pool.users.worker, "changed", 2)

    with pytest.raises(AccessRefused):
        await asyncio.wait_for(worker, PATIENCE_SECONDS)


async def test_a_worker_that_cannot_read_its_file_takes_the_address_of_its_start(
    make_pool: MakePool, tmp_path: Path
) -> None:
    worker = await serving(make_pool(), tmp_path / "absent")

    assert not worker.done()
    worker.cancel()
    await asyncio.gather(worker, return_exceptions=True)


async def serving(pool: Pool, file: Path | None) -> asyncio.Task[None]:
    """A worker of the key 42 that consumes."""
    queue = pool.names.request_queue("42")
    api = pool.broker.management
    arguments = dict(request_queue_arguments("42"))
    await asyncio.to_thread(api.put, "queues", pool.vhost, queue, body={"durable": True, "arguments": arguments})
    environment = WorkerEnvironment(
        id="w",
        key="42",
        pool="core",
        requests_queue=queue,
        activity_exchange=pool.names.activity_exchange,
        amqp_uri=pool.uri(pool.users.worker),
        amqp_uri_file=None if file is None else str(file),
    )

    async def handle(request: Request) -> bytes:
        return request.body

    def consumed() -> bool:
        return bool(api.get("queues", pool.vhost, queue).get("consumers"))

    task = asyncio.create_task(serve(handle, environment, asyncio.Event()))
    await asyncio.to_thread(until, consumed, what="a consumer")
    return task
