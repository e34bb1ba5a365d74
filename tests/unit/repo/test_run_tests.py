"""Which tiers run side by side, what a run notes of each, and what they may use."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import contained
import noted
import run_tests
import steps
import tier_run
import tiers
import verdict
from run_tests import Runner
from testbed import broker, imported, postgres, prepare, suite
from testbed.waiting import until
from tests.unit.repo.ended_tiers import run_of
from tier_run import Run
from tiers import Choice


def start_of(folder: Path, program: str) -> Run:
    """A tier whose pytest is this program."""
    output = folder / "output"
    with output.open("wb") as file:
        process = subprocess.Popen([sys.executable, "-c", program], stdout=file)
    return Run("x", process, folder / "folder", output, time.monotonic())


def started_together(order: list[str], choice: Choice) -> list[str]:
    """The tiers that a run starts at once, of these in their order."""
    runner = Runner(order, choice)
    for tier in order:
        if runner.fits(tier):
            runner.running.append(run_of(tier))
    return [run.tier for run in runner.running]


@pytest.mark.parametrize("everything", [False, True])
@pytest.mark.parametrize("number", [2, 8])
def test_the_tiers_that_run_together_need_no_more_cores_than_there_are(
    number: int, everything: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(number)))
    choice = Choice(all=everything)

    started = started_together(list(tiers.PLANS), choice)

    assert started[0] == "unit"
    assert sum(tiers.load(tier, choice) for tier in started) <= number
    # The longest of `make test`: what begins later ends later.
    assert everything or "broker" in started


def test_tiers_that_count_for_two_cores_together_run_side_by_side_on_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    order = ["pipeline", "roles", "jobs", "relay"]

    assert started_together(order, Choice()) == ["pipeline", "roles", "jobs"]
    assert started_together(order, Choice(all=True)) == ["pipeline", "roles"]
    assert started_together(["broker", "roles"], Choice(all=True)) == ["broker"]


def test_a_tier_that_needs_more_cores_than_there_are_runs_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0})
    runner = Runner(["unit", "broker"], Choice())

    assert runner.fits("unit")
    runner.running.append(run_of("unit"))
    assert not runner.fits("broker")


@pytest.mark.parametrize(
    "line, counts",
    [
        ("=== 2 failed, 10 passed in 3.21s ===", {"failed": 2, "passed": 10}),
        ("\x1b[32m=== \x1b[1m1 passed\x1b[0m in 61.00s (0:01:01) ===\x1b[0m", {"passed": 1}),
        ("7 passed, 1 error in 0.50s", {"passed": 7, "error": 1}),
        ("=== no tests ran in 0.01s ===", {}),
        ("tests/unit/repo/test_run_tests.py ..... [100%]", {}),
    ],
)
def test_counts_come_from_pytests_closing_line(line: str, counts: dict[str, int]) -> None:
    assert tier_run.counts_of(line) == counts


@pytest.mark.parametrize(
    "output, percent",
    [
        ("asyncio: mode=Mode.AUTO\ncreated: 3/3 workers\n", 0),
        ("created: 2/2 workers\n2 workers [37 items]\n\n.........F", 27),
        ("2 workers [144 items]\n\n" + "." * 72 + " [ 50%]\n" + "s" * 36, 75),
        (
            "\x1b[1mcollecting ... \x1b[0mcollected 20 items\n\ntests/b.py .\x1b[32m.\x1b[0m.  [ 15%]\ntests/c.py xX",
            25,
        ),
        ("collected 300 items / 260 deselected / 40 selected\n\ntests/a/test_b.py ....", 10),
        (
            "collected 1 item\n\ntests/b.py F [100%]\n=== FAILURES ===\nE   assert 0\nFAILED tests/b.py\n",
            100,
        ),
    ],
    ids=["none yet", "within a line", "lines", "one process", "deselected", "failures"],
)
def test_how_far_a_tier_is_comes_from_the_outcomes_that_it_has_shown(output: str, percent: int) -> None:
    assert tier_run.percent_of(output) == percent


def test_a_line_of_progress_says_of_each_tier_how_far_it_is_and_what_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("run_tests.PROGRESS_EVERY_SECONDS", 0.0)
    runner = Runner(["infra"], Choice())
    runner._live = False
    for tier in ("unit", "broker"):
        run = run_of(tier)
        run.output, run.folder = tmp_path / f"{tier}.log", tmp_path / tier
        run.output.write_text("2 workers [4 items]\n\n.F")
        noted.note(run.notes, noted.FAILED, "tests/x.py::test_y")
        runner.running.append(run)

    runner.progress()

    assert capsys.readouterr().out == "test: unit 50 %, 1 failed; broker 50 %, 1 failed; then infra\n"


def test_what_failed_or_was_left_behind_is_noted_for_the_end(tmp_path: Path) -> None:
    words = ["FAILED tests/unit/x.py::test_y - no", "ERROR    root:x.py:1 a line of a log", "left behind: file: z"]
    run = start_of(tmp_path, "print(" + repr("\n".join(words)) + ")")

    until(lambda: tier_run.ended(run))

    assert run.failures == [words[0], words[2]]


def test_an_empty_selection_is_not_a_failure_and_anything_else_is() -> None:
    assert [run_of("x", code=code).failed for code in (0, 5, 1, 2, contained.LEFT)] == [False, False, True, True, True]


def written(path: Path) -> int:
    """The number in a file; 0 while it is not there whole."""
    text = path.read_text() if path.exists() else ""
    return int(text) if text.endswith("\n") else 0


FLAKY = """
import pathlib, pytest

@pytest.mark.parametrize("word", WORDS)
def test_one(word):
    seen = pathlib.Path(__file__).with_name(word)
    first = not seen.exists()
    seen.touch()
    assert not first
"""


@pytest.fixture
def handlers() -> Iterator[None]:
    """Takes back the handlers of signals that a run sets for its process."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.full
@pytest.mark.usefixtures("handlers")
@pytest.mark.parametrize("flaky", [1, 4])
def test_a_run_with_a_few_flaky_tests_passes_and_says_so_and_one_with_many_fails(
    flaky: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    # Given a project with one tier, whose tests fail the first time
    (tmp_path / "tests/broker").mkdir(parents=True)
    for part in ("tools", "pyproject.toml", "tests/__init__.py", "tests/conftest.py", "lab"):
        (tmp_path / part).symlink_to(steps.ROOT / part)
    words = [f"w {number}@x" for number in range(flaky)]
    (tmp_path / "tests/broker/test_flaky.py").write_text(FLAKY.replace("WORDS", repr(words)))
    monkeypatch.setattr("steps.ROOT", tmp_path)
    monkeypatch.setattr("run_tests.prepare", lambda *_: None)
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    monkeypatch.setattr("sys.argv", ["run_tests.py", "broker"])
    monkeypatch.setattr("superuser.stop_where_asked", lambda *_: None)

    with pytest.raises(SystemExit) as ended:
        run_tests.main()

    shown = capfd.readouterr().out
    assert bool(ended.value.code) == (flaky > verdict.MOST_FLAKY), shown
    assert f"{flaky} flaky in" in shown.splitlines()[-1]
    assert "broker: flaky: " in shown
    assert ("test: FAILED, 4 tests passed only when they were run once more" in shown) == (flaky == 4)
    # The second time they ran one after the other
    assert shown.count("workers [") == 1
    # The first output and files stay, to find the cause in.
    assert "what the tests of broker wrote is in " in shown


def test_every_tier_on_a_broker_gets_the_one_that_make_test_may_use_and_no_other() -> None:
    for tier in sorted(imported.broker_tiers()):
        small = [part.name for part in prepare.needed("test", [tier])]
        assert "RabbitMQ 4.0" in small
        assert not {"RabbitMQ 4.3", "Docker engine", "Pulumi"} & {*small}
        assert "RabbitMQ 4.3" in [part.name for part in prepare.needed("test-all", [tier])]
    assert prepare.needed("test-all", ["unit", "simulation"]) == []
    assert tiers.ONE_BROKER == broker.DEMO_VERSION


@pytest.mark.parametrize("tier", ["jobs", "faults", "infra", "roles"])
def test_only_make_test_all_prepares_a_postgresql_and_for_each_tier_that_has_one(tier: str) -> None:
    small, whole = ({part.name for part in prepare.needed(suite, [tier])} for suite in ("test", "test-all"))

    assert "PostgreSQL" in whole - small
    assert "PostgreSQL" not in {part.name for part in prepare.needed("test-all", ["relay", "bus", "drivers"])}


def test_a_tier_gets_the_engines_that_its_tests_import_also_by_way_of_tests_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(imported, "ROOT", tmp_path)
    monkeypatch.setattr(imported, "TESTS", tmp_path / "tests")
    texts = {
        "near/test_it.py": "from testbed.postgres import Postgres\n",
        "far/deep/test_it.py": "def test_it():\n    from tests.far import helper\n",
        "far/helper.py": "from tests.near.fixtures import server\n",
        "near/fixtures.py": "import testbed.redis\n",
        "neither/test_it.py": "from testbed import docker\n",
        "unit/test_it.py": "from testbed.postgres import Postgres\n",
    }
    for name, text in texts.items():
        (tmp_path / "tests" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "tests" / name).write_text(text)

    assert imported.tiers_that_import("testbed.postgres") == {"near"}
    assert imported.tiers_that_import("testbed.redis") == {"near", "far"}
    assert imported.tiers_that_import("testbed.docker") == {"neither"}
    assert imported.broker_tiers() == {"near", "far", "neither"}


def test_make_engines_makes_every_part() -> None:
    assert len(prepare.needed("test-all", prepare.every_tier())) == len(prepare.parts())


def test_a_test_of_make_test_cannot_start_an_engine_of_make_test_all(monkeypatch: pytest.MonkeyPatch) -> None:
    assert suite.SUITE == run_tests.SUITE
    monkeypatch.setenv(run_tests.SUITE, "test")
    with pytest.raises(suite.NotInThisSuite, match="mark this test `full`"):
        broker.Broker(broker.NEWEST)
    with pytest.raises(suite.NotInThisSuite, match="mark this test `full`"):
        postgres.Postgres()

    monkeypatch.setenv(run_tests.SUITE, "test-all")
    suite.only_in_test_all("a Docker engine")


def test_what_processes_import_is_compiled_once_also_where_the_machine_says_otherwise(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    (tmp_path / "imported.py").touch()

    subprocess.run([sys.executable, "-c", "import imported"], cwd=tmp_path, env=steps.environment(), check=True)

    assert list((tmp_path / "__pycache__").glob("imported.*.pyc"))


GROUPED = """
import os, pathlib, pytest

@pytest.mark.xdist_group("engine")
@pytest.mark.parametrize("number", range(4))
def test_one(number):
    pathlib.Path(f"{os.environ['PYTEST_XDIST_WORKER']}.{number}").touch()
"""


def test_the_tests_of_a_group_are_given_to_one_process(tmp_path: Path) -> None:
    """What keeps an engine that is started once a process from being started in each of them."""
    (tmp_path / "test_grouped.py").write_text(GROUPED)
    python, _, _, _, *options = tiers.command("security", Choice(all=True))
    plain = ["--rootdir", ".", "-c", "/dev/null", "-p", "no:cacheprovider"]

    done = subprocess.run(
        [python, "-m", "pytest", "test_grouped.py", *plain, *options],
        cwd=tmp_path,
        check=False,
        capture_output=True,
        text=True,
    )

    assert done.returncode == 0, done.stdout
    ran = sorted(path.name.split(".") for path in tmp_path.glob("gw*"))
    assert [number for _, number in ran] == ["0", "1", "2", "3"]
    assert len({process for process, _ in ran}) == 1


@pytest.mark.parametrize(
    "chosen, choice",
    [(["unit", "simulation"], Choice()), (["unit", "broker"], Choice(all=True))],
    ids=["no tier needs one", "make test-all"],
)
def test_no_broker_is_shared_where(chosen: list[str], choice: Choice) -> None:
    with run_tests.shared_broker(chosen, choice) as variables:
        assert variables == {}
