"""Faults that a worker's own program makes: it forks, and it stops while its process stays."""

from __future__ import annotations

import os
import signal
from contextlib import closing
from random import Random

from faults import load
from faults.rig import VHOST, Rig
from testbed.foreign_client import ForeignClient

#: Seconds that the worker of a warm key may take for a request that the fault itself sends.
PATIENCE = 30.0
#: Seconds within which a worker that consumes nothing has ended: the daemon's grace, how late the broker counts, and as
#: long again for a machine that is busy.
GONE = 60.0
#: Requests that fork.
FORKS = 5


def forks(rig: Rig, random: Random) -> str:
    """Signals that a handler sends to the processes that it forked reach those, and do not stop the worker."""
    key = random.choice([key for key in load.WARM if key.startswith("library-")])
    for _ in range(FORKS):
        _order(rig, key, b"fork")
    rig.note_dead(key)
    return f"{FORKS} requests of {key}, each with a pool of processes"


def stops_and_stays(rig: Rig, random: Random) -> str:
    """A signal stops a worker, and a thread keeps its process: nothing consumes, and the engine sees it run."""
    key = random.choice([key for key in load.WARM if key != load.SPARE])
    _order(rig, key, b"linger")
    pids = rig.workers(key)
    for pid in pids:
        os.kill(pid, signal.SIGTERM)
    rig.until_true(lambda: not set(pids) & set(rig.workers(key)), within=GONE, what=f"the end of the worker of {key}")
    rig.note_dead(key)
    return f"the worker of {key}"


def _order(rig: Rig, key: str, order: bytes) -> None:
    """Have the worker of a key do something, and wait until it has. The account does not know of this request."""
    address = rig.broker.amqp_uri(vhost=VHOST)
    with closing(ForeignClient(address, rig.pool.names.request_exchange)) as client:
        answer = client.ask(key, order, timeout=PATIENCE)
    assert answer.status == "ok", f"{order.decode()} of {key}: {answer}"
