"""A client over plain Redis lists, written by hand: a thread for each call at a time, and the fewest commands."""

from __future__ import annotations

import asyncio
import secrets
from typing import Any, cast

from redis import Redis

from benchmarks.sides import turns
from benchmarks.sides.lists_client import ID


def main() -> None:
    (endpoint,) = turns.options()["endpoints"]
    redis = Redis.from_url(turns.uri(), protocol=2, socket_timeout=None)

    def call() -> object:
        name = secrets.token_hex(ID // 2)
        redis.rpush(endpoint, name.encode() + turns.BODY)
        _, answer = cast(Any, redis.blpop([f"{endpoint}:answer:{name}"], timeout=60))
        return answer

    asyncio.run(turns.serve(lambda seconds, outstanding: turns.in_threads(call, seconds, outstanding)))


if __name__ == "__main__":
    main()
