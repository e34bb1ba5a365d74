"""Which tiers run side by side, and how the run says what came of them."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

import contained
import run_tests
import steps
import tier_run
from run_tests import Runner
from tests.engines import prepare
from tests.engines.waiting import until
from tier_run import Run


def run_of(tier: str, code: int = 0, **counts: int) -> Run:
    """A tier that has ended, or that is still on its way."""
    process = subprocess.Popen.__new__(subprocess.Popen)
    process.returncode = code
    return Run(tier, process, Path("x"), Path("x"), 0.0, code=code, seconds=1.0, counts=counts)


def start_of(folder: Path, program: str) -> Run:
    """A tier whose pytest is this program."""
    output = folder / "output"
    with output.open("wb") as file:
        process = subprocess.Popen([sys.executable, "-c", program], stdout=file)
    return Run("x", process, folder / "folder", output, time.monotonic())


@pytest.fixture(params=[2, 8])
def runner(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Runner:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(request.param)))
    return Runner(["unit", "broker", "roles"], False, [])


def test_the_tiers_that_run_together_need_no_more_cores_than_there_are(runner: Runner) -> None:
    started = []
    for tier in run_tests.PLANS:
        if runner.fits(tier):
            runner.running.append(run_of(tier))
            started.append(tier)

    load = sum(run_tests.PLANS[tier].load for tier in started)
    assert started[0] == "unit"
    assert load <= runner._cores
    assert (len(started) == 1) == (runner._cores == 2)


def test_a_tier_that_needs_more_cores_than_there_are_runs_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0})
    runner = Runner(["unit", "broker"], False, [])

    assert runner.fits("unit")
    runner.running.append(run_of("unit"))
    assert not runner.fits("broker")


def test_every_tier_of_the_tree_is_found_and_the_planned_ones_come_first() -> None:
    found = run_tests.tiers()

    assert {"unit", "broker", "drivers", "roles"} <= set(found)
    assert found[0] == "unit"
    assert "engines" not in found


def test_the_fast_run_selects_in_every_tier_but_the_unit_tests() -> None:
    assert "fast" not in run_tests.command("unit", True, [])
    assert run_tests.command("broker", True, ["-k", "x"])[-4:] == ["-m", "fast", "-k", "x"]


@pytest.mark.parametrize(
    "line, counts",
    [
        ("=== 2 failed, 10 passed in 3.21s ===", {"failed": 2, "passed": 10}),
        ("\x1b[32m=== \x1b[1m1 passed\x1b[0m in 61.00s (0:01:01) ===\x1b[0m", {"passed": 1}),
        ("7 passed, 1 error in 0.50s", {"passed": 7, "error": 1}),
        ("=== no tests ran in 0.01s ===", {}),
        ("tests/unit/test_run_tests.py ..... [100%]", {}),
    ],
)
def test_counts_come_from_pytests_closing_line(line: str, counts: dict[str, int]) -> None:
    assert tier_run.counts_of(line) == counts


def test_the_closing_line_adds_up_and_counts_what_was_left_behind_as_an_error() -> None:
    runs = [run_of("unit", passed=3, errors=1), run_of("broker", code=contained.LEFT, passed=4, failed=2)]

    assert run_tests.closing_line(runs, 61.5).strip("= ") == "2 failed, 2 error, 7 passed in 61.50s"
    assert "left something behind" in run_tests.row(runs[1])


def test_what_failed_or_was_left_behind_is_noted_for_the_end(tmp_path: Path) -> None:
    words = ["FAILED tests/unit/x.py::test_y - no", "ERROR    root:x.py:1 a line of a log", "left behind: file: z"]
    run = start_of(tmp_path, "print(" + repr("\n".join(words)) + ")")

    until(lambda: tier_run.ended(run))

    assert run.failures == [words[0], words[2]]


def test_an_empty_selection_is_no_failure_and_anything_else_is() -> None:
    assert [run_of("x", code=code).failed for code in (0, 5, 1, 2, contained.LEFT)] == [False, False, True, True, True]


def written(path: Path) -> int:
    """The number in a file; 0 while it is not there whole."""
    text = path.read_text() if path.exists() else ""
    return int(text) if text.endswith("\n") else 0


def test_what_is_built_ahead_is_known_to_both_sides() -> None:
    assert set(run_tests.BUILT_AHEAD) == {*prepare.MODULES}
    assert set(run_tests.BUILT_AHEAD) <= set(run_tests.PLANS)


def test_building_ahead_leaves_nothing_running_when_the_tests_have_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = tmp_path / "python"
    builder.write_text("#!/bin/sh\nsleep 600 &\necho $! > child\nwait\n")
    builder.chmod(0o755)
    monkeypatch.setattr("steps.BIN", tmp_path)
    monkeypatch.setattr("steps.ROOT", tmp_path)

    with run_tests.built_ahead(["drivers"]):
        child = psutil.Process(until(lambda: written(tmp_path / "child")))

    until(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE)


def test_what_processes_import_is_compiled_once_also_where_the_machine_says_otherwise(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    (tmp_path / "imported.py").touch()

    subprocess.run([sys.executable, "-c", "import imported"], cwd=tmp_path, env=steps.environment(), check=True)

    assert list((tmp_path / "__pycache__").glob("imported.*.pyc"))


def test_nothing_is_built_where_no_tier_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("steps.BIN", Path("nowhere"))

    with run_tests.built_ahead([]):
        pass


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
    python, _, _, _, *options = run_tests.command("security", False, [])
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
