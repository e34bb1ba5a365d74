"""A client over plain Redis lists, written by hand: it pushes a request, and pops the answer from a list of its own."""

from __future__ import annotations

import asyncio
import secrets
from typing import Any, cast

from redis.asyncio import Redis

from benchmarks.sides import turns

#: Characters of the id of a call, before the body of its request.
ID = 32


async def main() -> None:
    (endpoint,) = turns.options()["endpoints"]
    redis = Redis.from_url(turns.uri(), protocol=2, socket_timeout=None)

    async def call() -> bytes:
        name = secrets.token_hex(ID // 2)
        pipeline = redis.pipeline(transaction=True)
        pipeline.rpush(endpoint, name.encode() + turns.BODY)
        pipeline.expire(endpoint, 86_400)
        await pipeline.execute()
        _, answer = await cast(Any, redis).blpop([f"{endpoint}:answer:{name}"], timeout=60)
        found: bytes = answer
        return found

    await turns.serve(lambda seconds, outstanding: turns.in_coroutines(call, seconds, outstanding))


if __name__ == "__main__":
    asyncio.run(main())
