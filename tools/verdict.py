"""What comes of tiers that have ended: which failed tests are run once more, which are flaky, and the table."""

import contained
from tier_run import Run
from tiers import EXACT

#: Flaky tests of one run above which it has failed.
MOST_FLAKY = 3
#: Failed tests of a tier above which none is run once more: that is not a matter of luck.
MOST_REPEATED = 10
#: pytest's exit code for "tests failed"; others are errors of its own, of collection, of the command line.
TESTS_FAILED = 1


def may_be_chance(run: Run) -> bool:
    """Whether the failed tests of a tier are run once more: on real engines, a few, and nothing else was wrong."""
    few = 0 < len(run.failed_tests) <= MOST_REPEATED
    return run.tier not in EXACT and run.code == TESTS_FAILED and few


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


def table(runs: list[Run]) -> str:
    """A row for each tier, then all failures: the output of a tier may be an hour and many screens away."""
    failures = (f"{run.tier}: {line}" for run in runs for line in run.failures)
    return "\n".join(["\ntier          seconds    cpu s  outcome", *map(row, runs), *failures])


def row(run: Run) -> str:
    """What the table says of a tier."""
    text = ", ".join(f"{number} {outcome}" for outcome, number in run.counts.items()) or "no tests"
    left = "it left something behind" if run.code == contained.LEFT else f"exit code {run.code}"
    return f"{run.tier:<12} {run.seconds:8.1f} {run.cpu:8.1f}  {text}{f'  <- FAILED, {left}' if run.failed else ''}"
