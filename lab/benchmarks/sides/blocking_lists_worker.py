"""Workers over plain Redis lists, written by hand: threads that block, and the fewest commands.

A request that is popped by a worker which dies is lost, and answers have no time to live.
"""

from __future__ import annotations

import threading
from typing import Any, cast

from redis import Redis

from benchmarks.sides import turns
from benchmarks.sides.lists_client import ID


def main() -> None:
    options = turns.options()
    (endpoint,) = options["endpoints"]
    redis = Redis.from_url(turns.uri(), protocol=2, socket_timeout=None)

    def work() -> None:
        while True:
            _, request = cast(Any, redis.blpop([endpoint]))
            redis.rpush(f"{endpoint}:answer:{request[:ID].decode()}", request[ID:])

    threads = [threading.Thread(target=work) for _ in range(options["workers"])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
