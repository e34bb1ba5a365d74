"""`make demo-relay`: calls workers that can only poll, while Redis stands still and a node is killed.

Two nodes of the relay share a Redis. A worker polls at each, for half of the airports; callers at each ask for all.
After a while Redis stands still for 20 seconds, and later one node gets SIGKILL. At the end every request is accounted
for, and its answer is compared with the flights. Ends with one line for scripts; exits with 1 when a request was lost,
ran twice or has a wrong answer, with 2 when the demo could not begin.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import logging
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from functools import cache as once
from pathlib import Path
from random import Random
from typing import Any

from examples.airports import cache, flights, prepare, questions
from examples.airports.relay_account import ANSWERED, Account, account
from examples.airports.relay_rig import Rig
from examples.airports.relay_worker import NUMBER, POOL
from osrdyne_relay import RelayError, Request
from osrdyne_relay.client import AsyncRelayClient
from osrdyne_runtime.console.streams import guarded
from testbed import redis
from testbed.apt import NotInstalled

#: For how long Redis stands still, in seconds.
OUTAGE_SECONDS = 20.0
#: When that begins and when the node is killed, as parts of the load.
OUTAGE_AT, KILL_AT = 0.15, 0.7
#: Seconds for one call, and between two lines about them.
TIMEOUT_SECONDS, TALK_SECONDS = 60.0, 10.0


class Calls:
    """The calls of the demo, and what became of them."""

    def __init__(self, clients: Sequence[AsyncRelayClient], airports: Sequence[str], seed: int) -> None:
        self._clients, self._airports, self._random = clients, airports, Random(seed)
        self._load = once(lambda code: flights.load(code, cache.folder()))
        self.sent = 0
        self.wrong = 0
        #: `ANSWERED` or the name of the error, by request.
        self.ends: dict[int, str] = {}

    async def one(self) -> None:
        """Ask one question, over the nodes in turn."""
        number, self.sent = self.sent, self.sent + 1
        airport, question = self._random.choice(self._airports), self._question()
        client = self._clients[number % len(self._clients)]
        request = Request(json.dumps(question).encode(), {NUMBER: str(number)})
        try:
            response = await client.call(f"{POOL}/{airport}", request, timeout=TIMEOUT_SECONDS)
        except RelayError as error:
            self.ends[number] = type(error).__name__
            return
        self.ends[number] = ANSWERED
        expected = json.loads(json.dumps(questions.answer(self._load(airport), question)))
        self.wrong += json.loads(response.body) != expected

    def _question(self) -> dict[str, Any]:
        at = f"2013-{self._random.randint(1, 12):02}-{self._random.randint(1, 28):02}T12:00"
        return self._random.choice(
            [
                {"question": "board", "at": at},
                {"question": "delays", "month": self._random.randint(1, 12)},
                {"question": "likely-delay", "at": at, "origin": "JFK"},
            ]
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; return the exit code."""
    options = _parser().parse_args(arguments)
    logging.basicConfig(level=logging.CRITICAL)
    try:
        redis.install()
        _say("preparing the flights, starting a Redis, two nodes of the relay and a worker at each")
        prepare.write(cache.source(), cache.folder())
        airports = sorted(path.stem for path in Path(cache.folder()).glob("???.json"))[: options.airports]
        with tempfile.TemporaryDirectory(prefix="osrdyne-demo-relay-") as folder, Rig(Path(folder), airports) as rig:
            found = asyncio.run(_run(options, rig, airports))
    except KeyboardInterrupt:
        return 130
    except (cache.NoDataSet, NotInstalled, redis.RedisFailed, OSError) as error:
        print(f"demo-relay: {error}", file=sys.stderr)
        return 2
    if options.json:
        print(json.dumps(dataclasses.asdict(found)))
    print(found.last_line, file=sys.stderr if options.json else sys.stdout)
    return 0 if found.good else 1


async def _run(options: argparse.Namespace, rig: Rig, airports: Sequence[str]) -> Account:
    token = rig.tokens["caller"]
    urls = [rig.urls, rig.urls[::-1]]
    async with AsyncRelayClient(urls[0], token=token) as first, AsyncRelayClient(urls[1], token=token) as second:
        calls = Calls([first, second], airports, options.seed)
        began = time.monotonic()
        talk = asyncio.create_task(_talk(calls, began))
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_load(calls, options, tasks))
            tasks.create_task(_outage(rig, options))
            tasks.create_task(_kill(rig, options))
        talk.cancel()
    _say(f"done in {time.monotonic() - began:.0f} s: {_shown(calls)}; wrong answers: {calls.wrong}")
    return account(calls.sent, calls.ends, rig.runs(), calls.wrong)


async def _load(calls: Calls, options: argparse.Namespace, tasks: asyncio.TaskGroup) -> None:
    """Send requests at a steady rate, whatever becomes of the earlier ones."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    for number in range(int(options.seconds * options.rate)):
        await asyncio.sleep(max(0.0, began + number / options.rate - loop.time()))
        tasks.create_task(calls.one())


async def _outage(rig: Rig, options: argparse.Namespace) -> None:
    await asyncio.sleep(options.seconds * OUTAGE_AT)
    _say(f"Redis stands still for {OUTAGE_SECONDS:g} s")
    rig.redis.stand_still()
    try:
        await asyncio.sleep(OUTAGE_SECONDS)
    finally:
        rig.redis.go_on()
    _say("Redis goes on")


async def _kill(rig: Rig, options: argparse.Namespace) -> None:
    await asyncio.sleep(options.seconds * KILL_AT)
    rig.kill_node(1)
    _say("one node is killed; its worker and its callers go to the other one")


async def _talk(calls: Calls, began: float) -> None:
    while True:
        await asyncio.sleep(TALK_SECONDS)
        _say(f"{time.monotonic() - began:4.0f} s: {_shown(calls)}")


def _shown(calls: Calls) -> str:
    ends = Counter(calls.ends.values())
    waiting = calls.sent - len(calls.ends)
    return ", ".join([f"{calls.sent} requests", *(f"{count} {end}" for end, count in ends.items()), f"{waiting} wait"])


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make demo-relay", description=(__doc__ or "").partition("\n\n")[0])
    option = parser.add_argument
    option("--seconds", type=float, default=80.0, help="how long requests are sent (%(default)g)")
    option("--rate", type=float, default=20.0, help="requests a second (%(default)g)")
    option("--airports", type=int, help="most airports; without it all")
    option("--seed", type=int, default=1, help="chooses airports and questions (%(default)s)")
    option("--json", action="store_true", help="print the numbers as one JSON object; the rest goes to stderr")
    return parser


if __name__ == "__main__":
    with guarded("demo-relay"):
        sys.exit(main())
