"""One run: load, faults one after the other, and the account."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from faults.jobs.account import Account, account
from faults.jobs.kinds import KINDS, SABOTAGE
from faults.jobs.processes import Processes
from faults.jobs.worker import REFUSED
from faults.plan import order
from osrdyne_jobs import states

#: Seconds within which a new job of each type and resource must be done once a fault is undone.
RECOVERY = 90.0
#: Most seconds from the begin of one fault to that of the next.
SPACING = 5.0
#: Seconds within which all jobs must have ended once no new ones are registered.
SETTLING = 180.0


@dataclass
class Kind:
    """What one kind of fault did."""

    injected: int = 0
    #: Seconds from the begin of a fault until it was undone and all was well again, at most.
    longest: float = 0.0
    #: Evidence of the last one.
    evidence: str = ""


@dataclass
class Result:
    """What one run found."""

    version: str
    seed: int
    kinds: dict[str, Kind] = field(default_factory=dict)
    account: Account | None = None
    #: How many runs had which outcome.
    outcomes: dict[str, int] = field(default_factory=dict)
    #: What a person should look at: lost jobs, faults that did not happen, what did not recover.
    troubles: list[str] = field(default_factory=list)


class Run:
    """Faults on one version of the broker."""

    def __init__(self, version: str, seed: int, duration: float, kinds: Sequence[str], keep: Path | None) -> None:
        self._random = Random(seed)
        self._duration = duration
        self._kinds = kinds
        self._keep = keep
        self._say: Callable[[str], None] = lambda _: None
        self.result = Result(version, seed, {kind: Kind() for kind in kinds})

    def go(self, say: Callable[[str], None]) -> Result:
        """Run, and return what was found. `say` takes lines for people."""
        self._say = say
        with (
            tempfile.TemporaryDirectory(prefix="osrdyne-faults-jobs-") as directory,
            Processes(self.result.version, Path(directory)) as on,
        ):
            try:
                on.until_recovered(within=RECOVERY)
                say("jobs of each type and resource are done")
                self._inject(on)
                self._settle(on)
                self._account(on)
            finally:
                if self._keep is not None:
                    shutil.copytree(directory, self._keep, dirs_exist_ok=True)
        return self.result

    def _inject(self, on: Processes) -> None:
        """Inject each kind once, also when the time is over, and then further ones while it lasts."""
        ends = time.monotonic() + self._duration
        slot = min(self._duration / len(self._kinds), SPACING)
        for number, kind in enumerate(order(self._kinds, self._random)):
            began = time.monotonic()
            if number >= len(self._kinds) and began >= ends - slot:
                break
            self._one(on, kind, number)
            on.last(min(began + slot, ends) - time.monotonic())
        on.last(ends - time.monotonic())

    def _one(self, on: Processes, kind: str, number: int) -> None:
        began, found = time.monotonic(), self.result.kinds[kind]
        try:
            found.evidence = {**KINDS, **SABOTAGE}[kind](on, self._random)
            found.injected += 1
            on.until_recovered(within=RECOVERY)
        except Exception as error:  # noqa: BLE001 - the run goes on, and ends as a failure
            self._trouble(f"{kind}: {(str(error) or type(error).__name__).splitlines()[0]}")
            on.put_right()
        took = time.monotonic() - began
        found.longest = max(found.longest, took)
        self._say(f"{number + 1:>3}. {kind:<16} {found.evidence}; all well again after {took:.1f} s")

    def _settle(self, on: Processes) -> None:
        on.stop_load()
        self._say("no new jobs; waiting until all have ended")
        try:
            on.until_done(within=SETTLING)
        except AssertionError as error:
            self._trouble(str(error))

    def _account(self, on: Processes) -> None:
        outcomes = [outcome or states.RUNNING for outcome in on.outcomes().values()]
        refused = sum(word == REFUSED for word, _ in on.noted())
        found = account(on.submitted(), on.jobs(), on.effects(), runs=len(outcomes), refused=refused)
        self.result.account = found
        self.result.outcomes = {outcome: outcomes.count(outcome) for outcome in sorted(set(outcomes))}
        for number in found.lost:
            self._trouble(f"lost: job {number}, {on.jobs().get(number, 'which is not in the database')}")
        for first, second in found.overlapping:
            self._trouble(f"overlapping: runs {first} and {second}")
        for kind, done in self.result.kinds.items():
            if not done.injected:
                self._trouble(f"nothing was injected of kind {kind}")

    def _trouble(self, text: str) -> None:
        self.result.troubles.append(text)
        self._say(f"TROUBLE {text}")
