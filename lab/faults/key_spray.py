"""One user asks random keys, as many as it can: what the others notice, and that every refusal is an answer.

Two pools of their own are asked for new keys by honest users at the same time, and one of them is sprayed: what the
machine and the broker lose to the spray, both lose. `python -m faults.key_spray POOL` sends what one program sends.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from faults import load
from faults.rig import Rig
from faults.timing import p99
from osrdyne_client import AsyncClient
from osrdyne_client.errors import RemoteError
from testbed import ROOT
from testbed.broker import Broker
from testbed.pool import DaemonProcess, Pool
from testbed.workers import MINIMAL

VHOST = "key-spray"
#: Keys of the spray, and seconds for them.
KEYS, SECONDS = 10_000, 10.0
#: Seconds between two new keys of an honest user: it keeps within its budget.
PACE_SECONDS = 1.0
#: Seconds between two new keys of a program that asks beside the spray with the same user, and measures refusals.
PROBE_PACE_SECONDS = 0.02
#: New keys of each program.
NUMBERS = {"spray": KEYS, "probe": int(SECONDS / PROBE_PACE_SECONDS), "honest": int(SECONDS / PACE_SECONDS)}
#: What the pools may have, and what their users may wake: many more than honest users do.
LIMITS = {"groups": 50, "client_connections": 20}
BUDGET = {"new_keys": 10, "new_key_interval": 2.0, "starts_in_flight": 16}
#: Most queues of a pool with its reply queues.
MOST_QUEUES = 60


@dataclass
class CallStatistics:
    """What a program saw: how often each status came, and how many milliseconds each took."""

    statuses: Counter[str] = field(default_factory=Counter)
    took: dict[str, list[float]] = field(default_factory=dict)

    def late(self, status: str) -> float:
        """Return how many milliseconds nearly all answers of this status took at most."""
        return p99(self.took.get(status, [0.0]))


@dataclass(frozen=True)
class SprayResult:
    """What the programs of one spray saw, and the most groups and queues that the sprayed pool had at once."""

    spray: CallStatistics
    #: Another program of the user that sprays, which sends few.
    probe: CallStatistics
    #: New keys of honest users, in the sprayed pool and in the second one.
    sprayed: CallStatistics
    control: CallStatistics
    most_groups: int
    most_queues: int


def key_spray(rig: Rig, random: Random) -> str:
    """Spray one of two pools for as long as honest users ask new keys of both. Raises AssertionError."""
    seen = sprayed_once(rig.broker, rig.directory)
    for what, program, status in (
        ("new keys of other users", seen.sprayed, "ok"),
        ("new keys in a second pool", seen.control, "ok"),
        ("refusals", seen.probe, "throttled"),
    ):
        rig.beside_sprays.setdefault(what, []).extend(program.took.get(status, []))
    slower = seen.sprayed.late("ok") / max(seen.control.late("ok"), 1.0)
    return (
        f"{seen.spray.statuses['ok']} of {KEYS} keys let in, {seen.spray.statuses['throttled']} refused within "
        f"{seen.spray.late('throttled'):.0f} ms, and {seen.probe.statuses['throttled']} of a program that sends few "
        f"within {seen.probe.late('throttled'):.0f} ms; at most {seen.most_groups} groups and {seen.most_queues} "
        f"queues; a new key of another user took {seen.sprayed.late('ok'):.0f} ms, beside it "
        f"{seen.control.late('ok'):.0f} ms ({slower:.2f} times)"
    )


def sprayed_once(broker: Broker, directory: Path) -> SprayResult:
    """Spray one of two pools on a virtual host of its own, which is deleted at the end. Raises AssertionError."""
    with ExitStack() as stack:
        broker.management.add_vhost(VHOST, broker.admin)
        stack.callback(broker.management.delete, "vhosts", VHOST)
        sprayed, control = (_pool(broker, directory, stack, name) for name in ("sprayed", "control"))
        sprayer = _another_client(sprayed)
        stack.callback(broker.management.delete, "users", sprayer[0])
        most = _Most(sprayed, control)
        stack.callback(most.stop)
        honest = [_program(pool, pool.client_uri, "honest") for pool in (sprayed, control)]
        hostile = [_program(sprayed, broker.amqp_uri(*sprayer, VHOST), what) for what in ("spray", "probe")]
        spray, probe, ours, theirs = (_seen(program) for program in (*hostile, *honest))
    seen = SprayResult(spray, probe, ours, theirs, most_groups=most.groups, most_queues=most.queues)
    missing = KEYS - seen.spray.statuses.total()
    assert missing == 0, f"{missing} requests of the spray have no answer"
    assert set(seen.spray.statuses) == {"ok", "throttled"}, f"the spray was answered {dict(seen.spray.statuses)}"
    few = seen.probe.statuses
    assert few.total() == NUMBERS["probe"], f"of the same user beside the spray: {dict(few)}"
    answers = seen.sprayed.statuses, seen.control.statuses
    assert all(set(statuses) == {"ok"} for statuses in answers), f"honest users: {answers}"
    assert most.groups <= LIMITS["groups"], f"{most.groups} groups at once"
    assert most.queues <= MOST_QUEUES, f"{most.queues} queues at once"
    return seen


def _pool(broker: Broker, directory: Path, stack: ExitStack, name: str) -> Pool:
    pool = Pool.on(broker, VHOST, name=name, unbind_delay=3.0, stop_delay=1.0, limits=LIMITS)
    stack.callback(pool.remove_users)
    daemon = DaemonProcess.of(pool, directory / f"{name}-{secrets.token_hex(4)}", worker=MINIMAL, limits=BUDGET)
    stack.callback(daemon.close)
    daemon.start()
    return pool


def _another_client(pool: Pool) -> tuple[str, str]:
    """Make a user with the rights of a client; return its name and password."""
    name, password = f"sprayer-{secrets.token_hex(4)}", secrets.token_hex(16)
    management = pool.broker.management
    replies = f"^reply-{name}-[0-9a-f]{{32}}$"
    rights = {"configure": replies, "write": f"^{pool.names.request_exchange}$", "read": replies}
    management.call("PUT", "users", name, body={"password": password, "tags": ""})
    management.call("PUT", "permissions", VHOST, name, body=rights)
    return name, password


class _Most:
    """The largest numbers that were seen of the first pool."""

    def __init__(self, pool: Pool, other: Pool) -> None:
        self.groups = self.queues = 0
        self._pool, self._other = pool, other
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._look, name="most", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()

    def _look(self) -> None:
        theirs = (self._other.names.pool, f"reply-{self._other.users.client}")
        while not self._stopped.wait(0.3):
            queues = [queue for queue in self._pool.queues() if not queue.startswith(theirs)]
            self.queues = max(self.queues, len(queues))
            groups = [queue for queue in queues if queue.startswith(self._pool.names.request_queue_prefix)]
            self.groups = max(self.groups, len(groups))


def _program(pool: Pool, uri: str, what: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "faults.key_spray", pool.names.pool, what],
        cwd=ROOT,
        env={**os.environ, load.URI_VARIABLE: uri},
        stdout=subprocess.PIPE,
        text=True,
    )


def _seen(program: subprocess.Popen[str]) -> CallStatistics:
    text, _ = program.communicate(timeout=400.0)
    found = json.loads(text)
    return CallStatistics(Counter(found["statuses"]), found["took"])


async def _ask(client: AsyncClient, key: str, seen: CallStatistics) -> None:
    began = time.perf_counter()
    try:
        status = (await client.call(key, b"x")).status
    except RemoteError as error:
        status = error.status
    seen.statuses[status] += 1
    seen.took.setdefault(status, []).append((time.perf_counter() - began) * 1000)


async def _main(pool: str, what: str) -> dict[str, Any]:
    if what == "spray":
        os.nice(19)  # one on another machine would not take processor time from ours
    seen, number, pace = CallStatistics(), NUMBERS[what], SECONDS
    async with AsyncClient(os.environ[load.URI_VARIABLE], pool, slots=KEYS, timeout=300.0) as client:
        began = time.monotonic()
        async with asyncio.TaskGroup() as tasks:
            for asked in range(number):
                await asyncio.sleep(max(0.0, began + asked * pace / number - time.monotonic()))
                tasks.create_task(_ask(client, f"{what}-{secrets.token_hex(8)}", seen))
    return {"statuses": seen.statuses, "took": seen.took}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(_main(*sys.argv[1:]))))
