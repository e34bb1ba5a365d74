"""A worker over plain Redis lists: pops all requests that wait, and pushes their answers to the lists of the clients.

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
    while True:
        _, requests = await cast(Any, redis).blmpop(0, 1, endpoint, direction="LEFT", count=options["workers"])
        pipeline = redis.pipeline(transaction=True)
        for request in requests:
            answers = f"{endpoint}:answers:{request[:ID].decode()}"
            pipeline.rpush(answers, request[ID:])
            pipeline.expire(answers, 1200)
        await pipeline.execute()


if __name__ == "__main__":
    asyncio.run(main())
