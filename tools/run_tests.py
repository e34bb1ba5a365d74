"""`make test`: run the tiers of tests one after the other, all of them; end with a table and one pytest line.

A tier is a folder of tests/ with test files in it. `--fast` runs the unit tests and the tests marked `fast`
of the other tiers. Names of tiers run only those. What follows `--` goes to pytest, as in
`tools/run_tests.py broker -- -k orphan`.
"""

import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field

import steps

TESTS = steps.ROOT / "tests"
#: Cheap and telling tiers first, so that a mistake shows early; a tier that is not named here comes last.
ORDER = ("unit", "simulation", "broker", "drivers", "infra", "roles", "pipeline")
#: Tiers whose tests may run side by side, with the most processes that pay off; each has brokers of its own.
PARALLEL = {"broker": 2}
#: Folders that hold what tests stand on, and no tests.
NOT_TIERS = ("engines",)
#: pytest's exit code for "no test was selected".
NOTHING_SELECTED = 5
#: pytest's exit code after Ctrl-C: the person wants an end, not the next tier.
INTERRUPTED = 2
CLOSING_LINE = re.compile(r"^=*\s*(?P<counts>(?:\d+ [a-z]+(?:, )?)+) in (?P<seconds>[\d.]+)s")


@dataclass
class Result:
    """How a tier ended: pytest's exit code, its counts by outcome ("passed": 12), seconds of wall time."""

    tier: str
    code: int
    seconds: float
    counts: dict[str, int] = field(default_factory=dict)

    @property
    def failed(self) -> bool:
        """True when a test failed or pytest itself did; an empty selection is no failure."""
        return self.code not in (0, NOTHING_SELECTED)


def tiers() -> list[str]:
    """The tiers that have tests, in the order in which they run."""
    found = {path.relative_to(TESTS).parts[0] for path in TESTS.glob("*/**/test_*.py")} - set(NOT_TIERS)
    return sorted(found, key=lambda tier: (ORDER.index(tier) if tier in ORDER else len(ORDER), tier))


def command(tier: str, fast: bool, extra: list[str]) -> list[str]:
    """How pytest is called for a tier."""
    processes = min(PARALLEL.get(tier, 0), os.cpu_count() or 1)
    return [
        str(steps.BIN / "python"),
        "-m",
        "pytest",
        f"tests/{tier}",
        *(["--numprocesses", str(processes)] if processes > 1 else []),
        *(["-m", "fast"] if fast and tier != "unit" else []),
        *(["--color=yes"] if sys.stdout.isatty() else []),
        *extra,
    ]


def counts_of(line: str) -> dict[str, int]:
    """The outcomes that a closing line of pytest names; empty for any other line."""
    plain = re.sub(r"\x1b\[[\d;]*m", "", line)
    found = CLOSING_LINE.match(plain)
    if not found:
        return {}
    pairs = (part.split(" ", 1) for part in found["counts"].split(", "))
    return {outcome: int(number) for number, outcome in pairs}


def run(tier: str, fast: bool, extra: list[str]) -> Result:
    """Run one tier and show its output as it comes."""
    print(f"\ntest: {tier}", flush=True)
    started = time.monotonic()
    counts: dict[str, int] = {}
    with subprocess.Popen(
        command(tier, fast, extra),
        cwd=steps.ROOT,
        env=steps.environment(PYTHONUNBUFFERED="1"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as pytest:
        assert pytest.stdout is not None
        # Ctrl-C reaches pytest as well, which then stops what its tests started: read on until it has ended.
        # It is ignored only now, because a child inherits what its parent ignores.
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        for line in pytest.stdout:
            print(line, end="", flush=True)
            counts = counts_of(line) or counts
        signal.signal(signal.SIGINT, before)
    return Result(tier, pytest.returncode, time.monotonic() - started, counts)


def closing_line(results: list[Result]) -> str:
    """One line for all tiers in the form of pytest's own."""
    total: dict[str, int] = {}
    for result in results:
        for outcome, number in result.counts.items():
            name = "error" if outcome == "errors" else outcome
            total[name] = total.get(name, 0) + number
    order = sorted(total, key=lambda name: (name != "failed", name != "error", name != "passed", name))
    text = ", ".join(f"{total[name]} {name}" for name in order) or "no tests ran"
    return f" {text} in {sum(result.seconds for result in results):.2f}s ".center(80, "=")


def main() -> None:
    """Run the tiers that the arguments select; exit with an error when one of them failed."""
    arguments, extra = sys.argv[1:], []
    if "--" in arguments:
        cut = arguments.index("--")
        arguments, extra = arguments[:cut], arguments[cut + 1 :]
    fast = "--fast" in arguments
    chosen = [argument for argument in arguments if argument != "--fast"] or tiers()
    unknown = sorted(set(chosen) - set(tiers()))
    if unknown:
        steps.stop(f"no such tier: {', '.join(unknown)}; there are {', '.join(tiers())}")
    results: list[Result] = []
    for tier in chosen:
        results.append(run(tier, fast, extra))
        if results[-1].code == INTERRUPTED:
            break
    print("\ntier          seconds  outcome")
    for result in results:
        text = ", ".join(f"{number} {outcome}" for outcome, number in result.counts.items()) or "no tests"
        verdict = f"  <- FAILED, exit code {result.code}" if result.failed else ""
        print(f"{result.tier:<12} {result.seconds:8.1f}  {text}{verdict}")
    print(closing_line(results), flush=True)
    sys.exit(any(result.failed for result in results))


if __name__ == "__main__":
    main()
