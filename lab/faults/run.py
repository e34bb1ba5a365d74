"""One run on one broker: load, faults one after the other, and the account."""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from faults import drain, load, timing
from faults.ledger import Row, Window, kind_during
from faults.plan import KINDS, SABOTAGE, order
from faults.rig import Rig

#: Seconds that all clients may need for an answer to a new request once a fault is undone.
RECOVERY_SECONDS = 60.0
#: Most seconds from the begin of one fault to that of the next.
SPACING_SECONDS = 4.0
#: Seconds before the end, and share of the duration, from which on nothing is asked that takes its time to fail.
QUIET_END_SECONDS, QUIET_SHARE = timing.MESSAGE_TTL_SECONDS, 0.2
#: Seconds within which everything must have come to its end once nothing new is asked.
SETTLING_SECONDS = 90.0
#: Seconds without an answer after which nothing more comes of empty queues: a client connects again within these.
STILL_SECONDS = 8.0


@dataclass
class Result:
    """What one run found."""

    version: str
    seed: int
    rows: list[Row] = field(default_factory=list)
    statuses: dict[str, int] = field(default_factory=dict)
    unconfirmed: int = 0
    #: Of the hostile peer that cost most: how many times as late 99 of 100 answers of warm keys were beside it.
    late: float = 0.0
    #: Milliseconds that requests beside sprays of keys took, by what they were.
    beside_sprays: dict[str, list[float]] = field(default_factory=dict)
    #: What a person should look at: lost requests, faults that could not be done, what did not recover.
    troubles: list[str] = field(default_factory=list)


class Run:
    """Faults on one version of the broker."""

    def __init__(
        self, version: str, seed: int, duration: float, kinds: list[str], keep: Path | None, say: Callable[[str], None]
    ) -> None:
        self._random = Random(f"{seed} {version}")
        self._duration = duration
        self._kinds = kinds
        self._keep = keep
        self._say = say
        self._windows: list[Window] = []
        self.result = Result(version, seed)

    def go(self) -> Result:
        """Run, and return what was found."""
        with (
            tempfile.TemporaryDirectory(prefix="osrdyne-faults-") as directory,
            Rig(self.result.version, Path(directory)) as rig,
        ):
            rig.until_recovered(within=RECOVERY_SECONDS)
            began = time.monotonic()
            self._say("every client has its first answers")
            try:
                self._inject(rig, began)
                ended = time.monotonic()
                self._settle(rig)
                self._account(rig, began, ended)
            finally:
                if self._keep is not None:
                    shutil.copytree(directory, self._keep / self.result.version, dirs_exist_ok=True)
        return self.result

    def _inject(self, rig: Rig, began: float) -> None:
        kinds, ends = order(self._kinds, self._random), began + self._duration
        slot = min(self._duration / len(self._kinds), SPACING_SECONDS)
        noise_ends, quiet = ends - min(QUIET_END_SECONDS, QUIET_SHARE * self._duration), False
        for number, kind in enumerate(kinds):
            missing = number < len(self._kinds)
            # Every kind has its turn, also when the time is over; the others come while it lasts.
            if not missing and time.monotonic() >= ends - slot:
                break
            rig.wait(max(0.0, min(began + number * slot, ends) - time.monotonic()))
            if not missing and not quiet and time.monotonic() >= noise_ends:
                quiet = True
                rig.pause(load.DEAD)
                rig.pause(load.CRASHES)
            self._one(rig, kind, number)
        rig.wait(max(0.0, ends - time.monotonic()))

    def _one(self, rig: Rig, kind: str, number: int) -> None:
        fault = {**KINDS, **SABOTAGE}[kind]
        began = time.monotonic()
        try:
            what = fault(rig, self._random)
        except Exception as error:  # noqa: BLE001 - the run goes on, and ends as a failure
            self._trouble(f"{kind} could not be done: {_first_line(error)}")
            rig.put_right()
            return
        undone = time.monotonic()
        try:
            rig.until_recovered(within=RECOVERY_SECONDS)
        except AssertionError as error:
            self._trouble(f"{kind} ({what}): {_first_line(error)}")
        ended = time.monotonic()
        self._windows.append(Window(kind, began, ended))
        answered = sum(bool(request.replies) for request in rig.ledger.confirmed)
        self._say(
            f"{number + 1:>3}. {kind:<22} {what}; lasted {undone - began:.1f} s, all well again after "
            f"{ended - undone:.1f} s; {len(rig.ledger.confirmed)} requests, {answered} answered"
        )

    def _settle(self, rig: Rig) -> None:
        rig.tell("stop")
        self._say("no new requests; waiting until all have come to their end")
        last = time.monotonic()

        def settled() -> bool:
            nonlocal last
            before = len(rig.ledger.answers)
            waiting = rig.read().waiting(rig.alive)
            if not rig.is_empty() or len(rig.ledger.answers) > before:
                last = time.monotonic()
                return False
            # Who waits for what is nowhere waits in vain.
            return not waiting or time.monotonic() - last > STILL_SECONDS

        with suppress(AssertionError):  # what is left is accounted for all the same
            rig.until_true(settled, within=SETTLING_SECONDS)

    def _account(self, rig: Rig, began: float, ended: float) -> None:
        rig.stop_all()
        rig.read()
        drain.drain(rig)
        rig.enter_lost()
        rig.ledger.redelivered = rig.deliveries("redelivered")
        ledger, result = rig.ledger, self.result
        result.rows = ledger.rows(self._windows, began=began, ended=ended, lifetime=timing.MESSAGE_TTL_SECONDS)
        result.statuses = dict(ledger.statuses)
        result.late = max(rig.late, default=0.0)
        result.beside_sprays = rig.beside_sprays
        result.unconfirmed = len(ledger.requests) - len(ledger.confirmed)
        for request in ledger.lost:
            kind = kind_during(request.sent, request.ended(timing.MESSAGE_TTL_SECONDS), self._windows)
            self._trouble(
                f"lost: {request.name} for key {request.key}, sent {request.sent - began:.1f} s on, first fault: {kind}"
            )
        done = {window.kind for window in self._windows}
        for kind in self._kinds:
            if kind not in done:
                self._trouble(f"nothing was injected of kind {kind}")

    def _trouble(self, text: str) -> None:
        self.result.troubles.append(f"{self.result.version}: {text}")
        self._say(f"TROUBLE {text}")


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]


def say_to_stderr(version: str) -> Callable[[str], None]:
    """Return what prints progress: the version and the seconds since now before every line."""
    began = time.monotonic()

    def say(text: str) -> None:
        print(f"faults: {version} {time.monotonic() - began:6.1f} s  {text}", file=sys.stderr, flush=True)

    return say
