"""A client over plain Redis lists that has one list for all its answers, and pops all that are there."""

from __future__ import annotations

import asyncio
import secrets
from typing import Any, cast

from redis.asyncio import Redis

from benchmarks.sides import turns
from benchmarks.sides.lists_client import ID


async def main() -> None:
    (endpoint,), own = turns.options()["endpoints"], secrets.token_hex(ID // 2)
    redis = Redis.from_url(turns.uri(), protocol=2, socket_timeout=None)
    waiting: dict[bytes, asyncio.Future[bytes]] = {}

    async def receive() -> None:
        while True:
            _, answers = await cast(Any, redis).blmpop(0, 1, f"{endpoint}:answers:{own}", direction="LEFT", count=256)
            for answer in answers:
                waiting.pop(answer[:ID]).set_result(answer[ID:])

    async def call() -> bytes:
        name = secrets.token_hex(ID // 2).encode()
        answered: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        waiting[name] = answered
        pipeline = redis.pipeline(transaction=True)
        pipeline.rpush(endpoint, own.encode() + name + turns.BODY)
        pipeline.expire(endpoint, 86_400)
        await pipeline.execute()
        return await answered

    receiving = asyncio.create_task(receive())
    await turns.serve(lambda seconds, outstanding: turns.in_coroutines(call, seconds, outstanding))
    receiving.cancel()


if __name__ == "__main__":
    asyncio.run(main())
