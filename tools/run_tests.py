"""`make test` and `make test-all`: run tiers of tests, side by side as far as there are processor cores; end with a
table and one pytest line.

A tier is a folder of tests/ with test files in it. `make test` leaves out what is marked `full` and runs on one version
of RabbitMQ; `--all` runs everything, on both. `--fast` runs the unit tests and the tests marked `fast` of the other
tiers. Names of tiers run only those. What follows `--` goes to pytest, as in `tools/run_tests.py broker -- -k orphan`.

What engines consist of is made before any test (testbed/prepare.py). The output of a tier is shown as a whole
when it ends; that of a tier which was chosen alone, as it comes. A tier that leaves a process, mount, container or file
behind has failed (tools/contained.py). A test of a tier with real engines that fails is run once more, alone, when
everything else has ended; if it passes then, it is counted as flaky (docs/testing.md).
"""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import contained
import steps
import superuser
from tier_run import Run, ended, start

TESTS = steps.ROOT / "tests"
#: Tiers without real engines. Nothing in them depends on the machine: a test that fails there is broken.
EXACT = ("unit", "simulation")
#: Flaky tests of one run above which it has failed.
MOST_FLAKY = 3
#: Failed tests of a tier above which none is run once more: that is no matter of luck.
MOST_REPEATED = 10
#: RabbitMQ of `make test`: the one that `make demo` brings where the machine's own package is too old.
ONE_BROKER = "4.0"
#: Variable that tells testbed/ which suite runs; see testbed/suite.py.
SUITE = "OSRDYNE_TEST_SUITE"
#: Variable that names the file of the broker that all tiers use; see testbed/broker.py.
SHARED_BROKER = "OSRDYNE_TEST_BROKER"
#: Seconds between two lines that say how far the tiers are.
PROGRESS_EVERY = 20.0


@dataclass(frozen=True)
class Plan:
    """How a tier runs."""

    #: Processes at most; there are no more than cores.
    processes: int
    #: How many cores are kept for them, with all engines and without the slow ones: about as many as they keep busy,
    #: and fewer where tests take no harm from a busy machine.
    load_of_all: float
    load_of_some: float
    #: Whether its tests wait more than they compute, so that there may be one process more.
    waits: bool = False


#: In the order in which they start: cheap and telling ones first, so that a mistake shows early, then long ones.
PLANS = {
    "unit": Plan(4, 2.0, 2.0),
    "simulation": Plan(2, 2.0, 2.0),
    "broker": Plan(4, 1.2, 1.0, waits=True),
    "pipeline": Plan(1, 0.8, 0.5),
    "roles": Plan(3, 1.2, 1.0),
    "infra": Plan(2, 0.8, 1.0),
    "faults": Plan(1, 1.2, 1.0),
    "drivers": Plan(4, 0.8, 1.0),
    "security": Plan(2, 0.8, 1.0),
    "jobs": Plan(2, 0.8, 0.5),
    "relay": Plan(2, 0.6, 0.5),
    "bus": Plan(2, 0.6, 0.5),
}
#: A tier that is not named above: after those, alone in its process.
OTHER = Plan(1, 1.0, 1.0)


@dataclass(frozen=True)
class Choice:
    """Which tests of the tiers run."""

    #: Everything, on all engines.
    all: bool = False
    #: Unit tests and those marked `fast`.
    fast: bool = False
    #: Further words for pytest.
    extra: tuple[str, ...] = ()

    def words(self, tier: str) -> list[str]:
        """What pytest is told."""
        fast = ["-m", "fast and not full"] if self.fast and tier != "unit" else []
        return [*([] if self.all else fast or ["-m", "not full"]), *([] if self.all else ["--broker", ONE_BROKER])]

    @property
    def suite(self) -> str:
        """The name of the suite: that of its target."""
        return "test-all" if self.all else "test"


def cores() -> int:
    """How many processor cores this process may use."""
    return len(os.sched_getaffinity(0))


def tiers() -> list[str]:
    """The tiers that have tests, in the order in which they start."""
    found = {path.relative_to(TESTS).parts[0] for path in TESTS.glob("*/**/test_*.py")}
    order = list(PLANS)
    return sorted(found, key=lambda tier: (order.index(tier) if tier in order else len(order), tier))


def load(tier: str, choice: Choice) -> float:
    """How many cores are kept for a tier."""
    plan = PLANS.get(tier, OTHER)
    return plan.load_of_all if choice.all else plan.load_of_some


def command(tier: str, choice: Choice) -> list[str]:
    """How pytest is called for a tier."""
    plan = PLANS.get(tier, OTHER)
    processes = min(plan.processes, max(2, cores())) + plan.waits
    if choice.fast and tier != "unit":
        processes = 1  # a few quick tests are done before a second process has its engines up
    return [
        *pytest(),
        f"tests/{tier}",
        # The tests of one engine have a group in common (`xdist_group`), so that one process has that engine.
        *(["--numprocesses", str(processes), "--dist", "loadgroup"] if processes > 1 else []),
        *choice.words(tier),
        *choice.extra,
    ]


def pytest() -> list[str]:
    """How pytest is called."""
    return [str(steps.BIN / "python"), "-m", "pytest", *(["--color=yes"] if sys.stdout.isatty() else [])]


def prepare(chosen: list[str], choice: Choice) -> None:
    """Make what the engines of these tiers consist of. Ends the script where that fails."""
    command = [str(steps.BIN / "python"), "-m", "testbed.prepare", choice.suite, *chosen]
    env = steps.environment(PYTHONPATH=str(steps.ROOT / "tools"))
    done = subprocess.run(command, cwd=steps.ROOT, env=env, stdin=subprocess.DEVNULL, check=False)
    if done.returncode:
        steps.stop("what the tests run on could not be made; no test was run")


@contextlib.contextmanager
def shared_broker(chosen: list[str], choice: Choice) -> Iterator[dict[str, str]]:
    """Give the variables by which all tiers of `make test` use one broker, which starts beside the first of them.

    `make test-all` has one for each process of a tier: its tests ask for more than one broker can give at a time.
    """
    if choice.all or not set(chosen) - set(EXACT):
        yield {}
        return
    with tempfile.TemporaryDirectory(prefix="osr-broker-") as folder:
        file = Path(folder, "broker.json")
        command = [str(steps.BIN / "python"), "-m", "testbed.broker", "share", ONE_BROKER, "--file", str(file)]
        environment = steps.environment(PYTHONPATH=str(steps.ROOT / "tools"), **{SUITE: choice.suite})
        # A Ctrl-C is for the tests, which end in good order before their broker does.
        keeper = subprocess.Popen(
            command, cwd=steps.ROOT, env=environment, stdin=subprocess.PIPE, start_new_session=True
        )
        try:
            yield {SHARED_BROKER: str(file)}
        finally:
            keeper.communicate()


class Runner:
    """Starts tiers in order, each as soon as enough cores are free, and shows what comes of them."""

    def __init__(self, chosen: list[str], choice: Choice, **variables: str) -> None:
        """`variables` are added to the environment of each tier."""
        self._variables = variables
        self.waiting = list(chosen)
        self.running: list[Run] = []
        self.done: list[Run] = []
        self._live = len(chosen) == 1
        self._choice = choice
        self._next_progress = time.monotonic() + PROGRESS_EVERY
        self._stopped = False

    def fits(self, tier: str) -> bool:
        """Whether there are cores for one more tier; there always are for a first."""
        together = [*(run.tier for run in self.running), tier]
        return not self.running or sum(load(one, self._choice) for one in together) <= cores()

    def stop(self, number: int, _: object) -> None:
        """Start no more tiers, and let the running ones end in good order. A Ctrl-C has reached them as well."""
        self._stopped = True
        self.waiting.clear()
        for run in self.running if number == signal.SIGTERM else ():
            run.process.terminate()

    def run(self) -> list[Run]:
        """Run all to the end, and what failed by chance once more."""
        while self.waiting or self.running:
            for tier in [one for one in self.waiting if self.fits(one)]:
                if self.fits(tier):
                    self.waiting.remove(tier)
                    print(f"test: {tier} starts", flush=True)
                    self.running.append(self._start(tier, command(tier, self._choice)))
            self._wait()
            self.progress()
        for run in self.done.copy():
            if may_be_chance(run) and not self._stopped:
                self.repeat(run)
        return self.done

    def repeat(self, run: Run) -> None:
        """Run the tests of a tier that failed once more, one after the other; note those that pass now."""
        print(f"\ntest: once more, alone: {', '.join(run.failed_tests)}", flush=True)
        self._live = True
        # --broker stays: the ids name the version.
        words = [word for word in self._choice.words(run.tier) if word not in ("-m", "not full", "fast and not full")]
        second = self._start(run.tier, [*pytest(), *words, *run.failed_tests])
        self.running.append(second)
        while self.running:
            self._wait()
        self.done.remove(second)
        judge(run, second)

    def _start(self, tier: str, command: list[str]) -> Run:
        return start(tier, command, **{SUITE: self._choice.suite, **self._variables})

    def _wait(self) -> None:
        time.sleep(0.1)
        for run in list(self.running):
            over = ended(run)
            if over or self._live:
                self.show(run, over)

    def show(self, run: Run, over: bool) -> None:
        """Print what a tier has to say."""
        if over and not self._live:
            print(f"\ntest: {run.tier}")
        print(run.text(), end="", flush=True)
        if over:
            if run.failed:
                print(f"test: what the tests of {run.tier} wrote is in {run.folder}, their output in {run.output}")
            else:
                run.output.unlink()
            sys.stdout.flush()
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


def may_be_chance(run: Run) -> bool:
    """Whether the failed tests of a tier are run once more: on real engines, a few, and nothing else was wrong."""
    few = 0 < len(run.failed_tests) <= MOST_REPEATED
    return run.tier not in EXACT and run.code == TESTS_FAILED and few


#: pytest's exit code for "tests failed"; others are errors of its own, of collection, of the command line.
TESTS_FAILED = 1


def judge(run: Run, second: Run) -> None:
    """Take the second run of a tier's failed tests into account."""
    run.seconds, run.cpu = run.seconds + second.seconds, run.cpu + second.cpu
    # Whatever ended it before it could say which tests failed, none of them is shown to be right.
    said = second.code == 0 or (second.code == TESTS_FAILED and second.failed_tests)
    still = set(second.failed_tests) if said else set(run.failed_tests)
    run.flaky = [test for test in run.failed_tests if test not in still]
    run.failed_tests = [test for test in run.failed_tests if test in still]
    run.failures += [f"flaky: {test}" for test in run.flaky]
    if not run.failed_tests:
        run.code = 0
    counts = {name: number for name, number in run.counts.items() if name not in ("failed", "error", "errors")}
    failed = {"failed": len(run.failed_tests)} if run.failed_tests else {}
    flaky = {"flaky": len(run.flaky)} if run.flaky else {}
    run.counts = {**failed, **counts, **flaky}


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


def chosen(arguments: list[str]) -> tuple[list[str], Choice]:
    """What the command line selects: tiers in their order, and which of their tests."""
    words, extra = arguments, []
    if "--" in arguments:
        cut = arguments.index("--")
        words, extra = arguments[:cut], arguments[cut + 1 :]
    known = tiers()
    named = [word for word in words if not word.startswith("--")]
    unknown = sorted({*named} - {*known} | {word for word in words if word.startswith("--")} - {"--fast", "--all"})
    if unknown:
        steps.stop(f"no such tier: {', '.join(unknown)}; there are {', '.join(known)}")
    return sorted(set(named or known), key=known.index), Choice("--all" in words, "--fast" in words, tuple(extra))


def main() -> None:
    """Run the tiers that the arguments select; exit with an error when one of them failed."""
    started = time.monotonic()
    selected, choice = chosen(sys.argv[1:])
    if set(selected) - set(EXACT):
        superuser.stop_where_asked("what the tests start")
    prepare(selected, choice)
    with shared_broker(selected, choice) as variables:
        runner = Runner(selected, choice, **variables)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, runner.stop)
        runs = runner.run()
    print("\ntier          seconds    cpu s  outcome")
    print("\n".join(row(run) for run in runs))
    # Once more, where they are found: the output of a tier may be an hour and many screens away.
    for run in runs:
        for line in run.failures:
            print(f"{run.tier}: {line}")
    flaky = sum(len(run.flaky) for run in runs)
    if flaky > MOST_FLAKY:
        print(f"test: FAILED, {flaky} tests passed only when they were run once more; at most {MOST_FLAKY} may")
    print(closing_line(runs, time.monotonic() - started), flush=True)
    sys.exit(any(run.failed for run in runs) or len(runs) < len(selected) or flaky > MOST_FLAKY)


if __name__ == "__main__":
    main()
