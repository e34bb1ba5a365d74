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
RECOVERY_SECONDS = 90.0
#: Most seconds from the start of a fault to the start of the next one.
SPACING_SECONDS = 5.0
#: Seconds within which all jobs must have ended once no new ones are registered.
SETTLING_SECONDS = 180.0


@dataclass
class KindResult:
    """The results of one kind of fault."""

    injected: int = 0
    #: Most seconds from the start of a fault until it was undone and new jobs were done again.
    longest: float = 0.0
    #: Evidence of the last one.
    evidence: str = ""


@dataclass
class Result:
    """The results of one run."""

    version: str
    seed: int
    kinds: dict[str, KindResult] = field(default_factory=dict)
    account: Account | None = None
    #: Outcome -> number of runs of jobs that had it.
    outcomes: dict[str, int] = field(default_factory=dict)
    #: Lines for a person to look at: lost jobs, faults that did not happen, programs that did not recover.
    troubles: list[str] = field(default_factory=list)


class Run:
    """Faults on one version of the broker."""

    def __init__(self, version: str, seed: int, duration: float, kinds: Sequence[str], keep: Path | None) -> None:
        self._random = Random(seed)
        self._duration = duration
        self._kinds = kinds
        self._keep = keep
        self._say: Callable[[str], None] = lambda _: None
        self.result = Result(version, seed, {kind: KindResult() for kind in kinds})

    def go(self, say: Callable[[str], None]) -> Result:
        """Run, and return the results. `say` takes lines for people."""
        self._say = say
        with (
            tempfile.TemporaryDirectory(prefix="osrdyne-faults-jobs-") as directory,
            Processes(self.result.version, Path(directory)) as processes,
        ):
            try:
                processes.until_recovered(within=RECOVERY_SECONDS)
                say("jobs of each type and resource are done")
                self._inject(processes)
                self._settle(processes)
                self._account(processes)
            finally:
                if self._keep is not None:
                    shutil.copytree(directory, self._keep, dirs_exist_ok=True)
        return self.result

    def _inject(self, processes: Processes) -> None:
        """Inject each kind once, even if that takes longer than the run shall last, and then more until its end."""
        ends = time.monotonic() + self._duration
        slot = min(self._duration / len(self._kinds), SPACING_SECONDS)
        for number, kind in enumerate(order(self._kinds, self._random)):
            began = time.monotonic()
            if number >= len(self._kinds) and began >= ends - slot:
                break
            self._inject_one(processes, kind, number)
            processes.wait(min(began + slot, ends) - time.monotonic())
        processes.wait(ends - time.monotonic())

    def _inject_one(self, processes: Processes, kind: str, number: int) -> None:
        began, found = time.monotonic(), self.result.kinds[kind]
        try:
            found.evidence = {**KINDS, **SABOTAGE}[kind](processes, self._random)
            found.injected += 1
            processes.until_recovered(within=RECOVERY_SECONDS)
        except Exception as error:  # noqa: BLE001 - the run goes on, and ends as a failure
            self._trouble(f"{kind}: {(str(error) or type(error).__name__).splitlines()[0]}")
            processes.put_right()
        took = time.monotonic() - began
        found.longest = max(found.longest, took)
        self._say(f"{number + 1:>3}. {kind:<16} {found.evidence}; all well again after {took:.1f} s")

    def _settle(self, processes: Processes) -> None:
        processes.stop_load()
        self._say("no new jobs; waiting until all have ended")
        try:
            processes.until_done(within=SETTLING_SECONDS)
        except AssertionError as error:
            self._trouble(str(error))

    def _account(self, processes: Processes) -> None:
        outcomes = [outcome or states.RUNNING for outcome in processes.outcomes().values()]
        refused = sum(word == REFUSED for word, _ in processes.noted())
        found = account(
            processes.submitted(), processes.jobs(), processes.effects(), runs=len(outcomes), refused=refused
        )
        self.result.account = found
        self.result.outcomes = {outcome: outcomes.count(outcome) for outcome in sorted(set(outcomes))}
        for number in found.lost:
            self._trouble(f"lost: job {number}, {processes.jobs().get(number, 'which is not in the database')}")
        for first, second in found.overlapping:
            self._trouble(f"overlapping: runs {first} and {second}")
        for kind, done in self.result.kinds.items():
            if not done.injected:
                self._trouble(f"nothing was injected of kind {kind}")

    def _trouble(self, text: str) -> None:
        self.result.troubles.append(text)
        self._say(f"TROUBLE {text}")
