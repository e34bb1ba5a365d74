"""What `make test-machines` runs, and what it says of that."""

from __future__ import annotations

import pytest

import machines
import steps
from testbed.bare_machine import Outcome


def test_the_commands_are_the_two_that_the_readme_shows() -> None:
    assert machines.readme_commands((steps.ROOT / "README.md").read_text()) == ["make demo", "make test"]


def test_every_machine_is_one_that_the_readme_names() -> None:
    page = (steps.ROOT / "README.md").read_text()

    for name in machines.MACHINES.values():
        release, number = name.split()
        assert f"{release} 12 or 13" in page
        assert number in ("12", "13")


@pytest.mark.parametrize(
    "code, output, said",
    [
        (
            0,
            "...\ndemo: requests=811 answered=811 wrong=0 lost=0\nmore\n",
            "demo: requests=811 answered=811 wrong=0 lost=0",
        ),
        (
            0,
            "x\n\x1b[32m=== 4887 passed, 68 deselected in 462.51s ===\x1b[0m\n",
            "4887 passed, 68 deselected in 462.51s",
        ),
        (
            1,
            "= 13 failed, 4874 passed in 9.00s =\nmake: *** [test] Error 1\n",
            "status 1: 13 failed, 4874 passed in 9.00s",
        ),
        (2, "make: git: No such file\n\n", "status 2: make: git: No such file"),
        (1, "", "status 1: no output"),
        (None, "half of it", "ended after 3600 s"),
    ],
)
def test_the_table_has_the_line_that_says_how_a_command_ended(code: int | None, output: str, said: str) -> None:
    assert machines.telling(Outcome("make test", code, 3600.0, output)) == said


def test_the_table_shows_a_command_that_failed() -> None:
    rows = [
        machines.Row("Debian 12", "3.11.2", "make demo", True, 100, "demo: lost=0"),
        machines.Row("Debian 13", "3.13.5", "make test", False, 600, "status 1: 13 failed"),
    ]

    assert [line for line in machines.table(rows).splitlines() if "FAILED" in line] == [
        "Debian 13  3.13.5   make test        600  FAILED, status 1: 13 failed"
    ]
