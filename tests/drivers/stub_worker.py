"""A worker without a broker, for tests of drivers: it only lives, in the way that its key says.

It prints `ready` once it can be asked to stop. Key `crash` ends at once with status 3; `deaf` ignores SIGTERM;
`parent` leaves a child behind; `busy` finishes what it holds, which takes a moment, says so, and ends a moment later.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import posix
import sys
import time

KEY = posix.environ[b"WORKER_KEY"].decode()
stopping = False


def on_term(*_: object) -> None:
    global stopping  # noqa: PLW0603 -- a signal handler has no other way
    stopping = KEY != "deaf"


_signal.signal(_signal.SIGTERM, on_term)
if KEY == "crash":
    print("cannot reach", posix.environ[b"WORKER_AMQP_URI"].decode(), flush=True)
    sys.exit(3)
if KEY == "parent" and not posix.fork():
    _signal.signal(_signal.SIGTERM, _signal.SIG_IGN)
    while True:
        time.sleep(60)
print("ready", flush=True)
while not stopping:
    time.sleep(0.02)
if KEY == "busy":
    time.sleep(0.3)
print("finished", flush=True)
if KEY == "busy":
    # Where an engine keeps no output of what has ended, it can be read until then.
    time.sleep(0.7)
