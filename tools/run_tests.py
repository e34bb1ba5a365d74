"""`make test`: run the tiers of tests, all of them, side by side as far as there are processor cores; end with a
table and one pytest line.

A tier is a folder of tests/ with test files in it. `--fast` runs the unit tests and the tests marked `fast`
of the other tiers. Names of tiers run only those. What follows `--` goes to pytest, as in
`tools/run_tests.py broker -- -k orphan`. The output of a tier is shown as a whole when it ends; that of a tier which
was chosen alone, as it comes. A tier that leaves a process, mount, container or file behind has failed
(tools/contained.py).
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

import contained
import steps
import superuser
from tier_run import Run, ended, start

TESTS = steps.ROOT / "tests"
#: Folders that hold what tests stand on, and no tests.
NOT_TIERS = ("engines",)
#: Tiers that start nothing for which root is needed.
ROOTLESS = ("unit", "simulation")
#: Tiers whose engines are built from source, once a machine: that begins while the tiers before them run.
BUILT_AHEAD = ("drivers", "infra")
#: Seconds between two lines that say how far the tiers are.
PROGRESS_EVERY = 20.0


@dataclass(frozen=True)
class Plan:
    """How a tier runs: in how many processes, and how many cores they keep busy, which is less where tests wait."""

    processes: int
    load: float


#: In the order in which they start: cheap and telling ones first, so that a mistake shows early, then long ones.
PLANS = {
    "unit": Plan(2, 2.0),
    "simulation": Plan(2, 2.0),
    "broker": Plan(3, 2.0),
    "drivers": Plan(4, 2.0),
    "roles": Plan(3, 1.5),
    "security": Plan(2, 1.5),
    "infra": Plan(2, 1.5),
    "faults": Plan(1, 2.5),
    "pipeline": Plan(1, 1.0),
}
#: A tier that is not named above: after those, alone in its process.
OTHER = Plan(1, 1.0)


def tiers() -> list[str]:
    """The tiers that have tests, in the order in which they start."""
    found = {path.relative_to(TESTS).parts[0] for path in TESTS.glob("*/**/test_*.py")} - set(NOT_TIERS)
    order = list(PLANS)
    return sorted(found, key=lambda tier: (order.index(tier) if tier in order else len(order), tier))


def command(tier: str, fast: bool, extra: list[str]) -> list[str]:
    """How pytest is called for a tier."""
    # A few quick tests are done before a second process has its engines up.
    processes = 1 if fast and tier != "unit" else PLANS.get(tier, OTHER).processes
    return [
        str(steps.BIN / "python"),
        "-m",
        "pytest",
        f"tests/{tier}",
        # Tests that fill the machine have a group in common (`xdist_group`), so that they follow each other.
        *(["--numprocesses", str(processes), "--dist", "loadgroup"] if processes > 1 else []),
        *(["-m", "fast"] if fast and tier != "unit" else []),
        *(["--color=yes"] if sys.stdout.isatty() else []),
        *extra,
    ]


@contextlib.contextmanager
def built_ahead(tiers: list[str]) -> Iterator[None]:
    """Build in the background what these tiers need (tests/engines/prepare.py), and leave nothing of it running."""
    if not tiers:
        yield
        return
    command = [str(steps.BIN / "python"), "-m", "tests.engines.prepare", *tiers]
    builder = subprocess.Popen(command, cwd=steps.ROOT, stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        yield
    finally:
        # Its compilers are in its session; a build that was cut short is begun anew by whoever needs it.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(builder.pid, signal.SIGTERM)
        builder.wait()


class Runner:
    """Starts tiers in order, each as soon as enough cores are free, and shows what comes of them."""

    def __init__(self, chosen: list[str], fast: bool, extra: list[str]) -> None:
        self.waiting = list(chosen)
        self.running: list[Run] = []
        self.done: list[Run] = []
        self._live = len(chosen) == 1
        self._fast, self._extra = fast, extra
        self._cores = float(len(os.sched_getaffinity(0)))
        self._next_progress = time.monotonic() + PROGRESS_EVERY

    def fits(self, tier: str) -> bool:
        """Whether there are cores for one more tier; there always are for a first."""
        busy = sum(PLANS.get(run.tier, OTHER).load for run in self.running)
        return not self.running or busy + PLANS.get(tier, OTHER).load <= self._cores

    def stop(self, number: int, _: object) -> None:
        """Start no more tiers, and let the running ones end in good order. A Ctrl-C has reached them as well."""
        self.waiting.clear()
        for run in self.running if number == signal.SIGTERM else ():
            run.process.terminate()

    def run(self) -> list[Run]:
        """Run all to the end."""
        with built_ahead([] if self._fast or self._live else [tier for tier in self.waiting if tier in BUILT_AHEAD]):
            return self._run()

    def _run(self) -> list[Run]:
        while self.waiting or self.running:
            for tier in [one for one in self.waiting if self.fits(one)]:
                if self.fits(tier):
                    self.waiting.remove(tier)
                    print(f"test: {tier} starts", flush=True)
                    self.running.append(start(tier, command(tier, self._fast, self._extra)))
            time.sleep(0.1)
            for run in list(self.running):
                over = ended(run)
                if over or self._live:
                    self.show(run, over)
            self.progress()
        return self.done

    def show(self, run: Run, over: bool) -> None:
        """Print what a tier has to say."""
        if over and not self._live:
            print(f"\ntest: {run.tier}")
        print(run.text(), end="", flush=True)
        if over:
            run.output.unlink()
            if run.failed:
                print(f"test: what the tests of {run.tier} wrote is in {run.folder}", flush=True)
            self.running.remove(run)
            self.done.append(run)

    def progress(self) -> None:
        """Say now and then how far the tiers are."""
        if self._live or not self.running or time.monotonic() < self._next_progress:
            return
        self._next_progress = time.monotonic() + PROGRESS_EVERY
        far = ", ".join(run.percent() for run in self.running)
        rest = f"; then {', '.join(self.waiting)}" if self.waiting else ""
        print(f"test: {far}{rest}", flush=True)


def closing_line(runs: list[Run], seconds: float) -> str:
    """One line for all tiers in the form of pytest's own."""
    total: dict[str, int] = {}
    for run in runs:
        for outcome, number in run.counts.items():
            name = "error" if outcome == "errors" else outcome
            total[name] = total.get(name, 0) + number
        if run.code == contained.LEFT:
            total["error"] = total.get("error", 0) + 1
    order = sorted(total, key=lambda name: (name != "failed", name != "error", name != "passed", name))
    text = ", ".join(f"{total[name]} {name}" for name in order) or "no tests ran"
    return f" {text} in {seconds:.2f}s ".center(80, "=")


def row(run: Run) -> str:
    """What the table says of a tier."""
    text = ", ".join(f"{number} {outcome}" for outcome, number in run.counts.items()) or "no tests"
    left = "it left something behind" if run.code == contained.LEFT else f"exit code {run.code}"
    return f"{run.tier:<12} {run.seconds:8.1f} {run.cpu:8.1f}  {text}{f'  <- FAILED, {left}' if run.failed else ''}"


def main() -> None:
    """Run the tiers that the arguments select; exit with an error when one of them failed."""
    arguments, extra = sys.argv[1:], []
    if "--" in arguments:
        cut = arguments.index("--")
        arguments, extra = arguments[:cut], arguments[cut + 1 :]
    known = tiers()
    chosen = [argument for argument in arguments if argument != "--fast"] or known
    unknown = sorted(set(chosen) - set(known))
    if unknown:
        steps.stop(f"no such tier: {', '.join(unknown)}; there are {', '.join(known)}")
    if set(chosen) - set(ROOTLESS):
        superuser.stop_where_asked("what the tests start")
    started = time.monotonic()
    runner = Runner(sorted(set(chosen), key=known.index), "--fast" in arguments, extra)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, runner.stop)
    runs = runner.run()
    print("\ntier          seconds    cpu s  outcome")
    print("\n".join(row(run) for run in runs))
    # Once more, where they are found: the output of a tier may be an hour and many screens away.
    for run in runs:
        for line in run.failures:
            print(f"{run.tier}: {line}")
    print(closing_line(runs, time.monotonic() - started), flush=True)
    sys.exit(any(run.failed for run in runs) or len(runs) < len(set(chosen)))


if __name__ == "__main__":
    main()
