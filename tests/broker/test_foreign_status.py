"""Peers that know `x-status` as a byte array only, as the clients and workers do that exist already.

In plain pika the type on the wire shows: a long string arrives as `str`, a byte array as `bytes`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from osrdyne_client import AsyncClient, errors
from testbed.foreign_client import ForeignClient
from testbed.peer import Peer, peer_of
from testbed.pool import DaemonProcess, Pool
from testbed.workers import LIBRARY, SCRIPTED

#: What such a client sends with every request; a byte array as well.
PATH = {"x-rpc-path": b"/v2/answer"}

MakePool = Callable[..., Pool]
MakeDaemon = Callable[..., DaemonProcess]
MakeClient = Callable[[Pool], ForeignClient]


@pytest.fixture
def pool(make_pool: MakePool) -> Pool:
    return make_pool(delivery_limit=2)


@pytest.fixture
async def peer(pool: Pool) -> AsyncIterator[Peer]:
    async with peer_of(pool, "42") as peer:
        yield peer


@pytest.mark.parametrize("worker", [SCRIPTED, LIBRARY], ids=["plain", "library"])
def test_a_client_that_reads_byte_arrays_only_reads_every_status(
    pool: Pool, make_daemon: MakeDaemon, make_client: MakeClient, worker: list[str]
) -> None:
    make_daemon(pool, worker=worker)
    client = make_client(pool)
    # When it asks for an answer, for the worker's end of patience, and for what the daemon refuses at once
    answered = client.send("42", b"hello", headers=PATH)
    given_up = client.send("43", b"requeue", headers=PATH)
    refused = client.send("44", b"", headers={**PATH, "CC": ["45"]})
    # Then what worker, dead-letter responder and orphan forwarder say is readable to it
    statuses = [answer.headers["x-status"] for answer in client.wait(answered, given_up, refused)]
    assert statuses == [b"ok", b"delivery_limit", b"invalid_request"]


def test_an_error_of_a_worker_with_our_library_is_readable_too(
    pool: Pool, make_daemon: MakeDaemon, make_client: MakeClient
) -> None:
    make_daemon(pool, worker=LIBRARY)
    answer = make_client(pool).ask("42", b"error", headers=PATH)
    assert answer.headers["x-status"] == b"error"
    assert answer.headers["x-rpc-path"] == PATH["x-rpc-path"]


@pytest.mark.parametrize("headers", [None, {"x-rpc-path": "/v2/answer"}], ids=["no path", "path as text"])
def test_any_other_client_gets_text(
    pool: Pool, make_daemon: MakeDaemon, make_client: MakeClient, headers: dict[str, Any] | None
) -> None:
    make_daemon(pool, worker=LIBRARY)
    client = make_client(pool)
    ids = [client.send("42", b"hello", headers=headers), client.send("43", b"x", headers={"CC": ["1"]})]
    assert [answer.headers["x-status"] for answer in client.wait(*ids)] == ["ok", "invalid_request"]


@pytest.mark.parametrize(
    "status, error", [(b"rejected", errors.Rejected), (b"expired", errors.Expired), (b"of-its-own", errors.RemoteError)]
)
async def test_our_client_understands_the_error_of_a_worker_that_sends_byte_arrays(
    pool: Pool, peer: Peer, status: bytes, error: type[errors.RemoteError]
) -> None:
    async with AsyncClient(pool.client_uri, pool.settings.name) as client:
        call = asyncio.create_task(client.call("42", b""))
        peer.reply(await peer.take(), b"body", {"x-status": status, "x-reason": b"why"})
        with pytest.raises(error) as raised:
            await call
    assert (raised.value.status, raised.value.reason, raised.value.body) == (status.decode(), "why", b"body")
