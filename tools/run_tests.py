"""`make test` and `make test-all`: run tiers of tests, side by side as far as there are processor cores; end with a
table and one pytest line.

A tier is a folder of tests/ with test files in it. `make test` leaves out what is marked `full` and runs on one version
of RabbitMQ; `--all` runs everything, on both. `--fast` runs the unit tests and the tests marked `fast` of the other
tiers. Names of tiers run only those. What follows `--` goes to pytest, as in `tools/run_tests.py broker -- -k orphan`.

What engines consist of is made before any test (lab/testbed/prepare.py). The output of a tier is shown as a whole
when it ends; that of a tier which was chosen alone, as it comes. A tier that leaves a process, mount, container or file
behind has failed (tools/contained.py). A test of a tier with real engines that fails is run once more, alone, when
everything else has ended; if it passes then, it is counted as flaky (docs/howto/testing.md).

`tiers` are those that there are, `tier_run` is one on its way, and `verdict` is what comes of those that have ended.
"""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import steps
import superuser
import tiers
import verdict
from osrdyne_runtime.console.streams import guarded
from tier_run import Run, ended, start
from tiers import ALONE, EXACT, ONE_BROKER, Choice

#: Variable by which lab/testbed/ learns which suite runs; see lab/testbed/suite.py.
SUITE = "OSRDYNE_TEST_SUITE"
#: Variable that names the file of the broker that all tiers use; see lab/testbed/broker.py.
SHARED_BROKER = "OSRDYNE_TEST_BROKER"
#: Variable that holds the first seed of simulations and hostile peers; see tests/simulation.
FIRST_SEED = "OSRDYNE_FIRST_SEED"
#: Seconds between two lines that say how far the tiers are.
PROGRESS_EVERY_SECONDS = 20.0


def prepare(chosen: list[str], choice: Choice) -> None:
    """Make what the engines of these tiers consist of. Ends the script where that fails."""
    command = [str(steps.BIN / "python"), "-m", "testbed.prepare", choice.suite, *chosen]
    done = subprocess.run(command, cwd=steps.ROOT, env=steps.environment(), stdin=subprocess.DEVNULL, check=False)
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
        environment = steps.environment(**{SUITE: choice.suite})
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
        self._next_progress = time.monotonic() + PROGRESS_EVERY_SECONDS
        self._stopped = False

    def fits(self, tier: str) -> bool:
        """Whether there are cores for one more tier; there always are for a first."""
        together = [*(run.tier for run in self.running), tier]
        return not self.running or sum(tiers.load(tier, self._choice) for tier in together) <= tiers.cores()

    def stop(self, number: int, _: object) -> None:
        """Start no more tiers, and let the running ones end in good order. A Ctrl-C has reached them as well."""
        self._stopped = True
        self.waiting.clear()
        for run in self.running if number == signal.SIGTERM else ():
            run.process.terminate()

    def run(self) -> list[Run]:
        """Run all to the end, and what failed by chance once more."""
        while self.waiting or self.running:
            for tier in [tier for tier in self.waiting if self.fits(tier)]:
                if self.fits(tier):
                    self.waiting.remove(tier)
                    print(f"test: {tier} starts", flush=True)
                    self.running.append(self._start(tier, tiers.command(tier, self._choice)))
            self._wait()
            self.progress()
        for run in self.done.copy():
            if verdict.may_be_chance(run) and not self._stopped:
                self.repeat(run)
        return self.done

    def repeat(self, run: Run) -> None:
        """Run the tests of a tier that failed once more, one after the other; note those that pass now."""
        print(f"\ntest: once more, alone: {', '.join(run.failed_tests)}", flush=True)
        self._live = True
        # --broker stays: the ids name the version.
        words = [word for word in self._choice.words(run.tier) if word not in ("-m", "not full", "fast and not full")]
        second = self._start(run.tier, [*tiers.pytest(), *words, *run.failed_tests])
        self.running.append(second)
        while self.running:
            self._wait()
        self.done.remove(second)
        verdict.judge(run, second)

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
        self._next_progress = time.monotonic() + PROGRESS_EVERY_SECONDS
        far = "; ".join(run.progress() for run in self.running)
        rest = f"; then {', '.join(self.waiting)}" if self.waiting else ""
        print(f"test: {far}{rest}", flush=True)


def main() -> None:
    """Run the tiers that the arguments select; exit with an error when one of them failed."""
    started = time.monotonic()
    selected, choice = tiers.chosen(sys.argv[1:])
    if set(selected) - set(ALONE):
        superuser.stop_where_asked("what the tests start", "test")
    first = tiers.first_seed(choice, os.environ.get(FIRST_SEED, ""))
    if {"simulation", "security", "relay"} & set(selected):
        print(f"test: simulations and hostile peers begin with seed {first}; FIRST={first} repeats them", flush=True)
    prepare(selected, choice)
    with shared_broker(selected, choice) as variables:
        runner = Runner(selected, choice, **variables, **{FIRST_SEED: str(first)})
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, runner.stop)
        runs = runner.run()
    print(verdict.table(runs))
    flaky = sum(len(run.flaky) for run in runs)
    if flaky > verdict.MOST_FLAKY:
        print(f"test: FAILED, {flaky} tests passed only when they were run once more; at most {verdict.MOST_FLAKY} may")
    print(verdict.closing_line(runs, time.monotonic() - started), flush=True)
    sys.exit(any(run.failed for run in runs) or len(runs) < len(selected) or flaky > verdict.MOST_FLAKY)


if __name__ == "__main__":
    with guarded("test"):
        main()
