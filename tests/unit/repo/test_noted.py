"""What a tier's pytest notes of its tests while it runs, and the line of progress that comes of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import noted
import steps
from noted import Notes
from testbed.waiting import until

BROKEN = """
import os, pathlib, pytest, time

def test_passes(): pass
def test_fails(): assert 0
def test_crashes(): os._exit(1)
def test_hangs():
    while not pathlib.Path("go").exists():
        time.sleep(0.02)

@pytest.fixture
def bad(): raise OSError
def test_has_a_bad_fixture(bad): pass
"""


def line(what: str, test: str, seconds: float) -> str:
    return f"{json.dumps([what, test, seconds])}\n"


def test_the_progress_counts_failures_and_names_the_tests_that_take_long_the_longest_first() -> None:
    begun = {"t.py::test_new[a::b]": 115.0, "t.py::test_old": 0.5, "t.py::TestX::test_older": 0.0}

    assert noted.progress("unit", 40, Notes(), 120.0) == "unit 40 %"
    said = noted.progress("security", 89, Notes(["t.py::test_x", "t.py::test_y"], begun), 120.0)
    assert said == "security 89 %, 2 failed, test_older for 120 s, test_old for 120 s"


def test_the_progress_shows_the_begin_of_a_long_name() -> None:
    said = noted.progress("unit", 0, Notes([], {f"t.py::test_{'x' * 200}": 0.0}), 30.0)

    assert said == f"unit 0 %, test_{'x' * (noted.SHOWN - 5)} for 30 s"


def test_a_test_that_has_ended_does_not_run_and_one_that_failed_twice_counts_once() -> None:
    text = line("begun", "a", 1) + line("begun", "b", 2) + line("failed", "b", 3) + line("failed", "b", 4)

    assert noted.noted(text + line("ended", "a", 5)) == Notes(["b"], {"b": 2})
    # A line that is being written
    assert noted.noted(text + line("ended", "a", 5)[:-3]) == Notes(["b"], {"a": 1, "b": 2})


@pytest.mark.parametrize("processes", [[], ["-n", "2"]], ids=["one process", "several"])
def test_pytest_notes_what_runs_and_what_failed(processes: list[str], tmp_path: Path) -> None:
    notes, crashes = tmp_path / "notes", bool(processes)
    for name in ("tests/conftest.py", "tests/__init__.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).symlink_to(steps.ROOT / name)
    code = BROKEN if crashes else BROKEN.replace("os._exit(1)", "pass")
    (tmp_path / "tests/test_broken.py").write_text(code)
    options = ["-q", "-c", "/dev/null", "--rootdir", ".", "-p", "no:cacheprovider", "-p", "no:randomly", *processes]
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", *options, "tests"],
        cwd=tmp_path,
        env=steps.environment(**{noted.NOTES: str(notes)}),
        stdout=subprocess.DEVNULL,
    )
    hanging, expected = "tests/test_broken.py::test_hangs", ["test_crashes"] * crashes + ["test_fails"]
    try:
        until(lambda: hanging in noted.read(notes).running and len(noted.read(notes).failed) >= len(expected))
        assert [*noted.read(notes).running] == [hanging]
    finally:
        (tmp_path / "go").touch()
        process.wait()

    said = noted.read(notes)
    assert said.failed == [f"tests/test_broken.py::{name}" for name in [*expected, "test_has_a_bad_fixture"]]
    assert said.running == {}


@pytest.mark.parametrize(
    ("reported", "test"),
    [
        ("tests/x.py::test_y[a]@group", "tests/x.py::test_y[a]"),
        ("tests/x.py::test_y[a@b]", "tests/x.py::test_y[a@b]"),
        ("tests/x.py::test_y[a@b]@group", "tests/x.py::test_y[a@b]"),
        ("tests/x.py::test_y", "tests/x.py::test_y"),
    ],
)
def test_the_group_of_a_test_is_not_part_of_its_id(reported: str, test: str) -> None:
    assert noted.without_group(reported) == test
