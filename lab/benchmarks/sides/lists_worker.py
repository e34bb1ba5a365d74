"""Workers over plain Redis lists, written by hand: each pops a request, and pushes its answer to the list of the call.

A request that is popped by a worker which dies is lost.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

from redis.asyncio import Redis

from benchmarks.sides import turns
from benchmarks.sides.lists_client import ID


async def main() -> None:
    options = turns.options()
    (endpoint,) = options["endpoints"]
    redis = Redis.from_url(turns.uri(), protocol=2, socket_timeout=None)

    async def work() -> None:
        while True:
            _, request = await cast(Any, redis).blpop([endpoint])
            answers = f"{endpoint}:answer:{request[:ID].decode()}"
            pipeline = redis.pipeline(transaction=True)
            pipeline.rpush(answers, request[ID:])
            pipeline.expire(answers, 1200)
            await pipeline.execute()

    await asyncio.gather(*(work() for _ in range(options["workers"])))


if __name__ == "__main__":
    asyncio.run(main())
