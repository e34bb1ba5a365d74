"""The tiers of tests: which there are, how many cores each takes, and how pytest is called for it."""

import os
import secrets
import sys
from dataclasses import dataclass

import steps

TESTS = steps.ROOT / "tests"
#: The unit tests of the product once more, on the newest Python that the README promises, where this one is older.
NEWEST_PYTHON = "unit-newest-python"
NEWEST = (3, 13)
#: Unit tests that do not run there: of the tree and its tools, which are for the Python of the checkout.
OF_THE_TREE = ("benchmarks", "release", "repo", "testbed")
#: Those that run there only with all tests: each starts dozens of programs.
OF_PROGRAMS = ("command/test_lost_output.py", "runtime/test_silent_peers.py")
#: Tiers that need neither an engine nor the superuser's rights.
ALONE = ("unit", "simulation")
#: Tiers without real engines. Nothing in them depends on the machine: a test that fails there is broken.
EXACT = (*ALONE, NEWEST_PYTHON)
#: RabbitMQ of `make test`: the one that `make demo` brings where the machine's own package is too old.
ONE_BROKER = "4.0"


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


#: In the order in which they start: cheap and telling ones first, so that a mistake shows early, then long ones. In
#: `make test` the longest, broker, mostly waits, and so starts beside the first.
PLANS = {
    "unit": Plan(4, 2.0, 1.5),
    "simulation": Plan(2, 2.0, 1.5),
    NEWEST_PYTHON: Plan(2, 1.2, 1.0),
    "broker": Plan(4, 1.2, 0.5, waits=True),
    "pipeline": Plan(1, 0.8, 0.5),
    "roles": Plan(3, 1.2, 1.0),
    "infra": Plan(2, 0.8, 1.0),
    "faults": Plan(1, 1.2, 1.0),
    "drivers": Plan(4, 0.8, 1.0),
    "security": Plan(2, 0.8, 1.0),
    "jobs": Plan(2, 0.8, 0.5),
    "relay": Plan(2, 0.6, 0.5),
    "bus": Plan(2, 0.6, 0.5),
    "release": Plan(2, 1.0, 1.0),
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
        """The options of pytest."""
        fast = ["-m", "fast and not full"] if self.fast and tier not in ("unit", NEWEST_PYTHON) else []
        return [*([] if self.all else fast or ["-m", "not full"]), *([] if self.all else ["--broker", ONE_BROKER])]

    def left_out(self, tier: str) -> tuple[str, ...]:
        """The files and folders of unit tests that do not run in this tier."""
        return (*OF_THE_TREE, *(() if self.all else OF_PROGRAMS)) if tier == NEWEST_PYTHON else ()

    @property
    def suite(self) -> str:
        """The name of the suite: that of its target."""
        return "test-all" if self.all else "test"


def first_seed(choice: Choice, given: str) -> int:
    """The first seed of simulations and hostile peers: the one given, else one by chance for all tests, and else 1."""
    if given and not given.isdecimal():
        steps.stop(f"the first seed is {given!r}; give a number, as in FIRST=647292441")
    return int(given) if given else secrets.randbelow(10**9) if choice.all else 1


def cores() -> int:
    """How many processor cores this process may use."""
    return len(os.sched_getaffinity(0))


def names() -> list[str]:
    """The tiers that have tests, in the order in which they start."""
    found = {path.relative_to(TESTS).parts[0] for path in TESTS.glob("*/**/test_*.py")}
    if sys.version_info[:2] < NEWEST:
        found.add(NEWEST_PYTHON)
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
    if choice.fast and tier not in ("unit", NEWEST_PYTHON):
        processes = 1  # a few quick tests are done before a second process has its engines up
    return [
        *([str(steps.BIN / "python"), "-m", "testbed.newest_python"] if tier == NEWEST_PYTHON else []),
        *pytest(),
        f"tests/{'unit' if tier == NEWEST_PYTHON else tier}",
        *(f"--ignore=tests/unit/{name}" for name in choice.left_out(tier)),
        # The tests of one engine have a group in common (`xdist_group`), so that one process has that engine.
        *(["--numprocesses", str(processes), "--dist", "loadgroup"] if processes > 1 else []),
        *choice.words(tier),
        *choice.extra,
    ]


def pytest() -> list[str]:
    """How pytest is called."""
    return [str(steps.BIN / "python"), "-m", "pytest", *(["--color=yes"] if sys.stdout.isatty() else [])]


def chosen(arguments: list[str]) -> tuple[list[str], Choice]:
    """What the command line selects: tiers in their order, and which of their tests."""
    words, extra = arguments, []
    if "--" in arguments:
        cut = arguments.index("--")
        words, extra = arguments[:cut], arguments[cut + 1 :]
    known = names()
    named = [word for word in words if not word.startswith("--")]
    unknown = sorted({*named} - {*known} | {word for word in words if word.startswith("--")} - {"--fast", "--all"})
    if unknown:
        steps.stop(f"no such tier: {', '.join(unknown)}; there are {', '.join(known)}")
    fast = "--fast" in words
    selected = set(named) or {tier for tier in known if not (fast and tier == NEWEST_PYTHON)}
    return sorted(selected, key=known.index), Choice("--all" in words, fast, tuple(extra))
