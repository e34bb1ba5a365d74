"""The states of a job and the outcomes of a run, and what follows from an attempt. Pure."""

from __future__ import annotations

import random

from osrdyne_runtime.retry import back_off

#: It waits for its first run.
REGISTERED = "registered"
#: A worker has it.
RUNNING = "running"
#: An attempt failed, and another will follow.
FAILED = "failed"
#: All its attempts failed: it waits for a person.
PARKED = "parked"
DONE = "done"
CANCELLED = "cancelled"

STATES = (REGISTERED, RUNNING, FAILED, PARKED, DONE, CANCELLED)
#: A run may begin.
WAITING = (REGISTERED, FAILED)
#: Nothing happens to it any more.
FINISHED = (DONE, CANCELLED)

#: The outcome of a run whose worker did not renew the lease: it ended, hung, or lost the database.
LOST = "lost"

#: Seconds before the second attempt; each further one waits twice as long, up to the longest.
FIRST_DELAY_SECONDS, LONGEST_DELAY_SECONDS = 5.0, 600.0


def retry_delay(attempts: int) -> float:
    """Return the seconds from the failure of an attempt, the first is 1, to the next one.

    A random part of up to a quarter keeps jobs apart that failed together.
    """
    return back_off(attempts, first=FIRST_DELAY_SECONDS, limit=LONGEST_DELAY_SECONDS) * (1 - 0.25 * random.random())
