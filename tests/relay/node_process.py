"""A node in a process of its own: `python -m tests.relay.node_process ROLE ADDRESS_FILE LOG TIMINGS`.

`server` serves the endpoint `e`. A body is a name and the seconds that it takes. It writes a line `run BODY`, and then
one with `abandoned`, `done` or `refused`. `caller` calls `e` with each line of its standard input as body, and writes a
line `BODY: RESPONSE` or `BODY: ERROR`.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from osrdyne_relay import Collected, Relay, RelayError, RelaySettings


async def main(role: str, address_file: str, log: str, timings: str) -> None:
    file = Path(log).open("a", buffering=1)  # noqa: ASYNC230, SIM115 - for as long as the process runs
    settings = RelaySettings.from_mapping(
        {"redis": {"url_file": address_file}, "prefix": "test", "timings": json.loads(timings)}
    )

    async def work(request: Collected) -> None:
        body = request.body.decode()
        print(f"run {body}", file=file)
        abandoned = asyncio.create_task(request.wait_abandoned())
        _, seconds = body.split()
        await asyncio.wait([abandoned], timeout=float(seconds))
        if abandoned.done():
            print(f"abandoned {body}: {type(abandoned.result()).__name__}", file=file)
        else:
            abandoned.cancel()
            try:
                await relay.apply_response(request.id, b"done")
                print(f"done {body}", file=file)
            except RelayError as error:
                print(f"refused {body}: {type(error).__name__}", file=file)

    async def call(body: str) -> None:
        try:
            said = (await relay.queue_and_wait("e", body.encode())).body.decode()
        except RelayError as error:
            said = type(error).__name__
        print(f"{body}: {said}", file=file)

    async with Relay(settings) as relay, asyncio.TaskGroup() as tasks:
        print("ready", file=file)
        while True:
            if role == "server":
                try:
                    request = await relay.dequeue("e")
                except RelayError:
                    continue
                if request is not None:
                    tasks.create_task(work(request))
            else:
                line = await asyncio.to_thread(sys.stdin.readline)
                tasks.create_task(call(line.strip()))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
