"""The daemon's driver `relay`: keys of a pool whose workers poll at a node, on a real broker and a real Redis."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from osrdyne_client import AsyncClient
from osrdyne_client.errors import Expired, RemoteError
from osrdyne_pool.settings import PoolSettings
from osrdyne_protocol.errors import SettingsError
from osrdyne_relay.driver.settings import RelayDriverSettings
from osrdyne_worker import Reject, Request, Requeue, WorkerError
from testbed.pool import DaemonProcess, Pool
from testbed.redis import RedisServer
from testbed.waiting import PATIENCE_SECONDS, until, until_async
from tests.broker.conftest import make_daemon, make_pool
from tests.relay.http_nodes import noded, working
from tests.relay.nodes import QUICK

__all__ = ["make_daemon", "make_pool"]

pytestmark = pytest.mark.xdist_group("driver")

#: Serves all keys of the pool.
GRANTS = {"worker": {"serve": ["core/*"]}}


def driver_of(redis: RedisServer, directory: Path, **timings: float) -> dict[str, Any]:
    """Settings of the driver, for a daemon whose files are in `daemon` below the directory."""
    return {
        "kind": "relay",
        "worker_amqp_uri_file": str(directory / "daemon" / "worker.uri"),
        "relay": {
            "redis": {"url_file": str(redis.address_file)},
            "prefix": "test",
            "timings": {**QUICK, **timings},
        },
    }


@pytest.fixture
def daemon_of(
    redis: RedisServer, tmp_path: Path, make_daemon: Callable[..., DaemonProcess]
) -> Callable[[Pool], DaemonProcess]:
    """Starts a daemon whose driver is the relay."""

    def make(pool: Pool) -> DaemonProcess:
        return make_daemon(pool, directory=tmp_path / "daemon", driver=driver_of(redis, tmp_path))

    return make


@pytest.fixture
async def node(redis: RedisServer, tmp_path: Path) -> AsyncIterator[str]:
    """The address of a node at which workers of the pool may poll."""
    async with noded(redis, tmp_path, grants=GRANTS) as url:
        yield url


@contextlib.asynccontextmanager
async def client_of(pool: Pool) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(pool.client_uri, "core", timeout=PATIENCE_SECONDS) as client:
        yield client


async def upper(request: Request) -> bytes:
    return f"{request.key}|{request.body.decode().upper()}".encode()


async def test_a_cold_key_is_answered_by_a_worker_that_polls(
    node: str, make_pool: Callable[..., Pool], daemon_of: Callable[[Pool], DaemonProcess]
) -> None:
    pool = make_pool()
    daemon = await asyncio.to_thread(daemon_of, pool)
    async with working(node, ["core/LAX", "core/a key/é"], upper), client_of(pool) as client:
        answers = [await client.call(key, b"question") for key in ("LAX", "a key/é", "LAX")]
        shown = daemon.key("LAX")
    assert [answer.body for answer in answers] == [b"LAX|QUESTION", "a key/é|QUESTION".encode(), b"LAX|QUESTION"]
    assert shown is not None
    assert (shown["state"], shown["workers"]) == ("ready", 1)


async def test_a_handler_gets_what_it_would_get_over_amqp_and_its_refusals_keep_their_status(
    node: str, make_pool: Callable[..., Pool], daemon_of: Callable[[Pool], DaemonProcess]
) -> None:
    seen: list[Request] = []

    async def handler(request: Request) -> bytes:
        seen.append(request)
        match request.body:
            case b"reject":
                raise Reject("not this one")
            case b"error":
                raise WorkerError(b"details", "no data")
        return b""

    pool = make_pool()
    await asyncio.to_thread(daemon_of, pool)
    came = []
    async with working(node, "core/LAX", handler), client_of(pool) as client:
        await client.call("LAX", b"fine", headers={"x-rpc-path": "/v2"}, timeout=600)
        for body in (b"reject", b"error"):
            with pytest.raises(RemoteError) as failed:
                await client.call("LAX", body)
            came.append((failed.value.status, failed.value.reason, failed.value.body))
    assert came[0][:2] == ("rejected", "not this one")
    assert came[1] == ("error", "no data", b"details")
    first = seen[0]
    assert (first.key, first.redelivered, first.headers["x-rpc-path"]) == ("LAX", False, "/v2")
    assert first.correlation_id
    assert first.deadline is not None


async def test_a_request_for_an_endpoint_that_no_worker_polls_expires_in_its_queue(
    make_pool: Callable[..., Pool], daemon_of: Callable[[Pool], DaemonProcess]
) -> None:
    pool = make_pool(message_ttl=3.0)
    daemon = await asyncio.to_thread(daemon_of, pool)
    async with client_of(pool) as client:
        with pytest.raises(Expired):
            await client.call("LAX", b"question")
        shown = daemon.key("LAX")
    assert shown is not None
    assert shown["state"] == "starting"


async def test_a_request_waits_in_its_queue_for_a_worker_that_polls_later(
    node: str, make_pool: Callable[..., Pool], daemon_of: Callable[[Pool], DaemonProcess]
) -> None:
    pool = make_pool()
    await asyncio.to_thread(daemon_of, pool)
    async with client_of(pool) as client:
        waiting = client.submit("LAX", b"question")
        queue = pool.names.request_queue("LAX")
        await asyncio.to_thread(until, lambda: pool.depth(queue) == 1, what="a request in the queue")
        async with working(node, "core/LAX", upper):
            assert (await waiting).body == b"LAX|QUESTION"


async def test_a_request_that_a_worker_gives_back_is_delivered_again(
    node: str, make_pool: Callable[..., Pool], daemon_of: Callable[[Pool], DaemonProcess]
) -> None:
    seen: list[bool] = []

    async def handler(request: Request) -> bytes:
        seen.append(request.redelivered)
        if len(seen) == 1:
            raise Requeue
        return b"done"

    pool = make_pool()
    await asyncio.to_thread(daemon_of, pool)
    async with working(node, "core/LAX", handler), client_of(pool) as client:
        assert (await client.call("LAX", b"question")).body == b"done"
    assert seen == [False, True]


@pytest.mark.full
async def test_a_request_whose_node_died_is_answered_by_the_next_worker(
    redis: RedisServer, node: str, tmp_path: Path, make_pool: Callable[..., Pool], daemon_of: Callable[..., Any]
) -> None:
    pool = make_pool()
    await asyncio.to_thread(daemon_of, pool)
    begun = asyncio.Event()

    async def never(_: Request) -> bytes:
        begun.set()
        await asyncio.Event().wait()
        return b""

    (tmp_path / "second").mkdir()
    async with client_of(pool) as client:
        # Given a request at a worker of a node that ends without grace
        async with noded(redis, tmp_path / "second", grants=GRANTS, serve={"grace": 0.1}) as second:
            worker = asyncio.create_task(_worked(second, never))
            waiting = client.submit("LAX", b"question")
            await begun.wait()
        # When another worker polls elsewhere, then it answers
        async with working(node, "core/LAX", upper):
            assert (await waiting).body == b"LAX|QUESTION"
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)


async def _worked(url: str, handler: Any) -> None:
    async with working(url, "core/LAX", handler, grace=0.1):
        await asyncio.Event().wait()


@pytest.mark.full
async def test_a_request_outlives_the_daemon_that_forwarded_it(
    node: str, make_pool: Callable[..., Pool], daemon_of: Callable[[Pool], DaemonProcess]
) -> None:
    pool = make_pool()
    daemon = await asyncio.to_thread(daemon_of, pool)
    begun, go = asyncio.Event(), asyncio.Event()

    async def handler(request: Request) -> bytes:
        begun.set()
        await go.wait()
        return b"redelivered" if request.redelivered else b"first"

    async with working(node, "core/LAX", handler, at_once=2), client_of(pool) as client:
        waiting = client.submit("LAX", b"question")
        await begun.wait()
        await asyncio.to_thread(daemon.stop, signal.SIGKILL)
        begun.clear()
        await asyncio.to_thread(daemon.start)
        # The broker gives it to the next daemon, and that one to the worker
        await begun.wait()
        go.set()
        assert (await waiting).body == b"redelivered"


@pytest.mark.full
async def test_a_redis_that_is_away_is_the_error_of_its_keys_and_ends_nothing(
    private_redis: RedisServer,
    tmp_path: Path,
    make_pool: Callable[..., Pool],
    make_daemon: Callable[..., DaemonProcess],
) -> None:
    pool = make_pool()
    daemon = await asyncio.to_thread(
        make_daemon, pool, directory=tmp_path / "daemon", driver=driver_of(private_redis, tmp_path, retry_for=1.0)
    )

    async def failed() -> bool:
        shown = await asyncio.to_thread(daemon.key, "LAX")
        return shown is not None and "whether a worker polls" in str(shown["last_error"])

    async with (
        noded(private_redis, tmp_path, grants=GRANTS) as node,
        working(node, "core/LAX", upper),
        client_of(pool) as client,
    ):
        assert (await client.call("LAX", b"before")).body == b"LAX|BEFORE"
        await asyncio.to_thread(private_redis.kill)
        await until_async(failed)
        waiting = client.submit("LAX", b"after")
        await asyncio.to_thread(private_redis.start)
        assert (await waiting).body == b"LAX|AFTER"


@pytest.mark.full
async def test_an_idle_key_leaves_and_comes_back(
    node: str, make_pool: Callable[..., Pool], daemon_of: Callable[[Pool], DaemonProcess]
) -> None:
    pool = make_pool(unbind_delay=1.0, stop_delay=1.0)
    daemon = await asyncio.to_thread(daemon_of, pool)
    async with working(node, "core/LAX", upper), client_of(pool) as client:
        for _ in range(2):
            assert (await client.call("LAX", b"question")).body == b"LAX|QUESTION"

            async def gone() -> bool:
                return await asyncio.to_thread(daemon.key, "LAX") is None

            await until_async(gone)
    failures = [line for line in daemon.lines() if "exception" in line]
    assert failures == []


def test_the_daemon_opens_a_new_driver_when_a_file_of_the_connection_to_redis_changes() -> None:
    redis = {"url_file": "/etc/a", "password_file": "/etc/b", "ca_file": "/etc/c"}
    made = RelayDriverSettings.model_validate({"kind": "relay", "relay": {"redis": redis}})

    assert [*made.files()] == [Path("/etc/a"), Path("/etc/b"), Path("/etc/c")]


def test_settings_without_the_address_of_a_worker_say_what_is_missing() -> None:
    made = RelayDriverSettings.model_validate({"kind": "relay", "relay": {"redis": {"url": "redis://localhost"}}})
    with pytest.raises(SettingsError, match=r"driver\.worker_amqp_uri"):
        made.open(PoolSettings("core"))
