"""A client of Celery with Redis as broker and result backend.

One call at a time is `delay(...).get()`. Of several, one thread receives the results of all, which costs less than a
thread for each.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from benchmarks.sides import turns
from benchmarks.sides.celery_redis_worker import application


def main() -> None:
    app = application()
    (endpoint,) = turns.options()["endpoints"]

    def send() -> Any:
        return app.send_task("echo", (turns.BODY,), queue=endpoint)

    async def turn(seconds: float, outstanding: int) -> tuple[int, float]:
        began = time.perf_counter()
        calls = (one_by_one if outstanding == 1 else together)(began + seconds, outstanding)
        return calls, time.perf_counter() - began

    def one_by_one(until: float, _: int) -> int:
        calls = 0
        while time.perf_counter() < until:
            turns.check(send().get(timeout=60))
            calls += 1
        return calls

    def together(until: float, outstanding: int) -> int:
        calls, waiting = 0, set[str]()

        def done(result: Any) -> None:
            nonlocal calls
            turns.check(result.result)
            waiting.discard(result.id)
            calls += 1

        while waiting or time.perf_counter() < until:
            while len(waiting) < outstanding and time.perf_counter() < until:
                result = send()
                waiting.add(result.id)
                result.then(done)
            app.backend.result_consumer.drain_events(timeout=1)
        return calls

    asyncio.run(turns.serve(turn))


if __name__ == "__main__":
    main()
