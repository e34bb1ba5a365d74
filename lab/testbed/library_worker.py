"""A worker with our library that does what a request's body says: `error`, `requeue`, `reject`, `sleep SECONDS` (more
words may follow), `await FILE` (until there is that file), `headers`, `crash` (with a FILE: once there is that file),
`hang`, `fork` (a pool of processes, for this request alone), `linger` (a thread that no stop ends), `flood BYTES` (a
thread that prints so many as fast as it can); else, and after `sleep`, `await` and the last three, it answers with the
key, `|` and the body.

The variable RUNNER says how handlers run: in a `thread` (also several: THREADS, and PREFETCH), a `process` or as a
`coroutine`. DELIVERIES names a file that gets a line for each request that was delivered before (`redelivered`) or that
the daemon forwarded as an orphan (`forwarded`): that word, and the moment by the machine's monotonic clock. RUNS names
a file that gets the body of each request, as a line, when its handler begins.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import multiprocessing
import os
import threading
import time

from osrdyne_worker import Reject, Request, Requeue, WorkerError, run


def handle(request: Request) -> bytes:
    """Obey."""
    note(request)
    wait_for_file(request)
    return obey(request)


def obey(request: Request) -> bytes:
    word, _, argument = request.body.partition(b" ")
    if word == b"error":
        raise WorkerError(b"no such airport", reason="asked for an error")
    if word == b"requeue":
        raise Requeue
    if word == b"reject":
        raise Reject("asked for a refusal")
    if word == b"crash":
        os._exit(3)
    if word in (b"sleep", b"hang"):
        time.sleep(seconds(argument))
    if word == b"fork":
        with multiprocessing.get_context("fork").Pool(2) as pool:
            pool.map(abs, range(4))
    if word in (b"linger", b"flood"):
        begin_thread(word, argument)
    if word == b"headers":
        return repr(sorted(request.headers.items())).encode()
    return request.key.encode() + b"|" + request.body


def wait_for_file(request: Request) -> None:
    word, _, argument = request.body.partition(b" ")
    while word in (b"await", b"crash") and argument and not os.path.exists(argument):
        time.sleep(0.01)


def seconds(argument: bytes) -> float:
    return float(argument.split()[0]) if argument else 1000.0


def note(request: Request) -> None:
    if file := os.environ.get("RUNS"):
        with open(file, "ab") as opened:
            opened.write(request.body + b"\n")
    if file := os.environ.get("DELIVERIES"):
        words = [("redelivered", request.redelivered), ("forwarded", "x-osrdyne-hops" in request.headers)]
        with open(file, "a", encoding="ascii") as opened:
            opened.write("".join(f"{word} {time.monotonic()}\n" for word, holds in words if holds))


def begin_thread(word: bytes, argument: bytes) -> None:
    if word == b"flood":
        threading.Thread(target=flood, args=(int(argument),), daemon=True).start()
    else:
        threading.Thread(target=time.sleep, args=(1000,), name="a thread of the user's", daemon=False).start()


def flood(most: int) -> None:
    written = 0
    while written < most:
        written += os.write(1, b"line\n" * 10_000)


async def coroutine(request: Request) -> bytes:
    note(request)
    word, _, argument = request.body.partition(b" ")
    if word in (b"hang", b"sleep"):
        await asyncio.sleep(seconds(argument))
        return request.key.encode() + b"|" + request.body
    await asyncio.to_thread(wait_for_file, request)
    if word == b"crash":
        # Others have begun, too.
        await asyncio.sleep(0.1)
    return obey(request)


def main() -> None:
    runner = os.environ.get("RUNNER")
    if runner is None:
        run(handle)
    elif runner == "process":
        run(handle, executor=concurrent.futures.ProcessPoolExecutor(2), prefetch=2, grace=1.0)
    elif runner == "coroutine":
        run(coroutine, prefetch=int(os.environ.get("PREFETCH", "4")), grace=1.0)
    else:
        threads = int(os.environ.get("THREADS", "1"))
        run(handle, threads=threads, prefetch=int(os.environ.get("PREFETCH", threads)), grace=1.0)


if __name__ == "__main__":
    main()
