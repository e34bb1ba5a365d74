"""What the clients send: the load's pattern, pure, and the commands that they get on their standard input.

Keys: warm ones on two kinds of worker, which always have requests; cold ones that come, go and come back; one whose
worker crashes on some requests; one whose worker never starts.
"""

from __future__ import annotations

import sys
import threading
from dataclasses import dataclass

WARM = ("warm-0", "library-0", "warm-1", "library-1")
#: Beginning of every cold key. A client asks one for a while, then the next; after the last it begins again.
COLD = "cold-"
COLD_KEYS, COLD_REQUESTS = 6, 12
#: Its worker crashes on a request that says so.
CRASHES = "crashes"
#: Its worker never starts.
DEAD = "dead"
#: Only asked between faults: its queue may be deleted while it is paused.
SPARE = "warm-1"

#: Requests a second of each client.
RATE = 15.0
#: Environment variable with a client's AMQP address, which is a credential.
URI_VARIABLE = "FAULTS_AMQP_URI"


@dataclass(frozen=True, slots=True)
class Ask:
    """One request."""

    key: str
    #: What its worker is to do, before the request's own name: nothing, or `crash:`.
    order: str = ""
    wants_reply: bool = True

    def body(self, name: str) -> bytes:
        return f"{self.order}{name}".encode()


def name_in(body: bytes) -> str:
    """Return the name of the request that has this body."""
    return body.rpartition(b":")[2].decode(errors="replace")


def ask(client: str, number: int) -> Ask:
    """Return the request of this number of a client."""
    if number % 300 == 100:
        return Ask(CRASHES, "crash:")
    if number % 300 == 200:
        return Ask(CRASHES, "crash:", wants_reply=False)
    if number % 30 == 20:
        return Ask(CRASHES)
    if number % 60 == 40:
        return Ask(DEAD, wants_reply=number % 120 == 40)
    if number % 5 == 3:
        turn = number // 5 // COLD_REQUESTS
        return Ask(f"{COLD}{client}-{turn % COLD_KEYS}")
    return Ask(WARM[number % len(WARM)])


class Commands:
    """What the runner orders a client to do: `pause PREFIX`, `resume PREFIX`, `stop`. The end of input ends all."""

    def __init__(self) -> None:
        self._paused: set[str] = set()
        self.stopped = False
        self.ended = threading.Event()
        threading.Thread(target=self._read, name="commands", daemon=True).start()

    def _read(self) -> None:
        for line in sys.stdin:
            word, _, rest = line.strip().partition(" ")
            if word == "pause":
                self._paused = self._paused | {rest}
            elif word == "resume":
                self._paused = self._paused - {rest}
            elif word == "stop":
                self.stopped = True
        self.ended.set()

    def allows(self, key: str) -> bool:
        """Say whether this key may be asked now."""
        return not self.stopped and not key.startswith(tuple(self._paused) or ("\0",))
