"""The load: which jobs there are, how long they take, and the times of the pool; all times in seconds."""

from __future__ import annotations

from osrdyne_jobs import JobType

#: Its jobs run one after the other. The payload is how long a run takes.
ORDERED = JobType("ordered", payload=float, max_attempts=50)
#: The same, coalesced.
TOGETHER = JobType("together", payload=float, max_attempts=50, coalesce=True)
TYPES = (ORDERED, TOGETHER)
#: Each has a worker, which does a job of each type at once.
RESOURCES = ("east", "north", "south", "west")
#: Jobs that the client registers in a second, in turn of all types and resources.
RATE = 8.0
#: Seconds that a run takes.
WORK_SECONDS = 0.4
#: Seconds that a run of every `LONG_EVERY`-th job takes: long enough for a fault to come within it.
LONG_WORK_SECONDS, LONG_EVERY = 2.0, 15

#: Seconds after which the job of a dead worker is taken over.
LEASE_SECONDS = 6.0
#: Seconds between AMQP heartbeats: the broker gives up a worker that stands still after two of them.
HEARTBEAT_SECONDS = 3.0
#: Seconds without a job after which a worker would be stopped: longer than any run.
UNBIND_DELAY_SECONDS, STOP_DELAY_SECONDS = 600.0, 600.0
#: The table `[pool.jobs.redo]`.
REDO = {"interval": 0.5, "pause": 2.0, "lease": 3.0, "alive_interval": 60.0, "patience": LEASE_SECONDS}
#: How many redo processes run: one leads, one stands by.
REDO_PROCESSES = 2

#: Variables of client and worker.
DATABASE, URI, POOL, JOURNAL, NOTES, UNFENCED = (
    f"FAULTS_{name}" for name in ("DATABASE", "URI", "POOL", "JOURNAL", "NOTES", "UNFENCED")
)


def job(number: int) -> tuple[str, str, float]:
    """Return type, resource and payload of the job of this number."""
    kind = TYPES[number % len(TYPES)]
    resource = RESOURCES[number // len(TYPES) % len(RESOURCES)]
    return kind.name, resource, LONG_WORK_SECONDS if number % LONG_EVERY == 0 else WORK_SECONDS
