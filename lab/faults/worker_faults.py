"""Faults that a worker's own program makes: it forks, it stops while its process stays, it floods its log."""

from __future__ import annotations

import os
import signal
import time
from contextlib import closing
from random import Random

import psutil

from faults import load
from faults.rig import VHOST, Rig
from osrdyne.drivers.subprocess.template import SubprocessTemplate
from testbed.foreign_client import ForeignClient

#: Seconds that the worker of a warm key may take for a request that the fault itself sends.
PATIENCE_SECONDS = 30.0
#: Seconds within which a worker that consumes nothing has ended: the daemon's grace, how late the broker counts, and as
#: long again for a machine that is busy.
GONE_SECONDS = 60.0
#: How many times its limit a worker writes into its log as fast as it can, and the seconds that this may take.
TIMES, FLOODED = 10, 120.0
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
    rig.until_true(
        lambda: not set(pids) & set(rig.workers(key)), within=GONE_SECONDS, what=f"the end of the worker of {key}"
    )
    rig.note_dead(key)
    return f"the worker of {key}"


def floods_its_log(rig: Rig, random: Random) -> str:
    """A worker writes as fast as it can: its log keeps to the limit at each look, and others are answered meanwhile."""
    key = random.choice([key for key in load.WARM if key.startswith("library-")])
    limit = SubprocessTemplate(("worker",)).log_limit
    log = rig.log(key)
    (pid,) = rig.workers(key)
    began, most, wrote = time.monotonic(), 0, 0
    _order(rig, key, f"flood {TIMES * limit}".encode())
    while wrote < TIMES * limit:
        assert time.monotonic() < began + FLOODED, f"the worker of {key} wrote only {wrote:,} bytes"
        sizes = [path.stat().st_size for path in (log, log.with_suffix(".log.1")) if path.exists()]
        assert max(sizes) <= limit, f"{log} of {limit:,} bytes has {max(sizes):,}"
        most, wrote = max(most, sum(sizes)), psutil.Process(pid).io_counters().write_chars
        rig.wait(0.01)
    silent = rig.alive - rig.read().answered_since(began)
    assert not silent, f"without an answer during the flood: {', '.join(silent)}"
    return f"{wrote / 1e6:,.0f} MB by the worker of {key}, of which the disk had {most / 1e6:.0f} MB at most"


def _order(rig: Rig, key: str, order: bytes) -> None:
    """Have the worker of a key do something, and wait until it has. The account does not know of this request."""
    address = rig.broker.amqp_uri(vhost=VHOST)
    with closing(ForeignClient(address, rig.pool.names.request_exchange)) as client:
        answer = client.ask(key, order, timeout=PATIENCE_SECONDS)
    assert answer.status == "ok", f"{order.decode()} of {key}: {answer}"
