"""One handler function serves a pool over AMQP and an endpoint over the relay."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from osrdyne_client import AsyncClient, errors
from osrdyne_relay.client import AsyncRelayClient
from osrdyne_relay.errors import CallRefused
from osrdyne_worker import Reject, Request, WorkerError
from testbed.pool import Pool
from testbed.redis import RedisServer
from tests.broker.conftest import make_pool
from tests.broker.test_worker import working as working_over_amqp
from tests.relay.http_nodes import GRANTS, TOKENS, noded, working

__all__ = ["make_pool"]


def handle(request: Request) -> bytes:
    """The handler: it does not know how its requests come."""
    if request.body == b"no":
        raise Reject("not this one")
    if request.body == b"broken":
        raise WorkerError(b"details", "no data")
    return request.key.encode() + b": " + request.body.upper()


@pytest.mark.full
async def test_the_same_handler_answers_alike_over_amqp_and_over_the_relay(
    make_pool: Callable[..., Pool], redis: RedisServer, tmp_path: Path
) -> None:
    pool = make_pool()
    grants = {**GRANTS, "worker": {"serve": ["core/*"]}, "caller": {"call": ["core/*"]}}
    async with (
        working_over_amqp(pool, handle, key="42"),
        AsyncClient(pool.client_uri, pool.settings.name, timeout=60) as client,
        noded(redis, tmp_path, grants=grants) as url,
        working(url, "core/42", handle),
        AsyncRelayClient(url, token=TOKENS["caller"]) as relay,
    ):
        answers = (await client.call("42", b"x")).body, (await relay.call("core/42", b"x", timeout=60)).body
        assert answers == (b"42: X", b"42: X")
        for body in (b"no", b"broken"):
            with pytest.raises(errors.RemoteError) as over_amqp:
                await client.call("42", body)
            with pytest.raises(CallRefused) as over_relay:
                await relay.call("core/42", body, timeout=60)
            one, other = over_amqp.value, over_relay.value
            assert (one.status, one.reason, one.body) == (other.status, other.reason, other.body)
