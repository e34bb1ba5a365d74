"""A client over plain Redis lists, written by hand: a thread for each call at a time, and the fewest commands."""

from __future__ import annotations

import asyncio
import secrets
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

from redis import Redis

from benchmarks.sides import turns
from benchmarks.sides.lists_client import ID


def main() -> None:
    (endpoint,) = turns.options()["endpoints"]
    redis = Redis.from_url(turns.uri(), protocol=2, socket_timeout=None)

    def calls(until: float) -> int:
        number = 0
        while time.perf_counter() < until:
            name = secrets.token_hex(ID // 2)
            redis.rpush(endpoint, name.encode() + turns.BODY)
            _, answer = cast(Any, redis.blpop([f"{endpoint}:answer:{name}"], timeout=60))
            turns.check(answer)
            number += 1
        return number

    async def turn(seconds: float, outstanding: int) -> tuple[int, float]:
        began = time.perf_counter()
        with ThreadPoolExecutor(outstanding) as threads:
            number = sum(threads.map(calls, [began + seconds] * outstanding))
        return number, time.perf_counter() - began

    asyncio.run(turns.serve(turn))


if __name__ == "__main__":
    main()
