"""Every command of `osrdyne`, those of all packages, where its output cannot be shown or written."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from osrdyne_command.program import main
from testbed import lost_output
from testbed.lost_output import CONDITIONS
from tests.unit.command.every_command import COMMANDS, DONE, WORDS, words_of


def expected(condition: str, code: int) -> tuple[int, str]:
    """The exit status, and how the line on standard error begins that is about the output."""
    if condition == "full":
        return 2, "osrdyne: standard output cannot be written: No space left on device; free space there, or send it"
    return (141 if condition == "gone" else code), ""


def test_every_command_is_tried() -> None:
    assert sorted(WORDS) == sorted(COMMANDS)


@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_ends_in_good_order_where_its_output_is_lost(
    command: str, condition: str, folder: Path, url: str
) -> None:
    words = words_of(command, folder, url)

    done = lost_output.run(main, [*command.split(), *words], condition)

    code, line = expected(condition, 0 if command in DONE else 2)
    assert (done.code or 0) == code, done
    assert "Traceback" not in done.err
    assert line in done.err
    if condition == "ascii":
        assert done.out.isascii()
        assert done.out.strip()
        assert "--json" not in words or json.loads(done.out)
    if condition == "gone":
        assert "standard output" not in done.err


@pytest.mark.parametrize(
    ("command", "condition"),
    [
        # All print their help in one way: that of the group shows each condition.
        pytest.param(command, condition, marks=pytest.mark.full if command and condition != "full" else ())
        for command in ("", *COMMANDS)
        for condition in CONDITIONS
    ],
)
def test_the_help_of_a_command_ends_in_good_order_where_its_output_is_lost(command: str, condition: str) -> None:
    done = lost_output.run(main, [*command.split(), "--help"], condition)

    code, line = expected(condition, 0)
    assert (done.code or 0) == code
    assert "Traceback" not in done.err
    assert line in done.err


def test_characters_that_a_terminal_cannot_show_are_escaped(url: str) -> None:
    assert r"Z\xfcrich" in lost_output.run(main, ["status", "--url", url], "ascii").out


def test_an_error_about_the_command_line_is_escaped() -> None:
    assert r"No such command 'stat\xfcs'" in lost_output.run(main, ["statüs"], "ascii").err


@pytest.mark.parametrize("condition", ["full", "gone"])
def test_a_status_that_is_shown_again_and_again_ends_where_its_reader_has_gone(condition: str, url: str) -> None:
    done = lost_output.run(main, ["status", "--url", url, "--watch", "0.1"], condition)

    assert done.code == expected(condition, 0)[0]
    assert "Traceback" not in done.err


def test_standard_error_on_a_full_disk_changes_nothing_of_a_command() -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "osrdyne.cli", "status", "--url", "nowhere", "--json"],
            stdout=subprocess.PIPE,
            stderr=full,
            check=False,
        )

    assert done.returncode == 2
    assert "error" in json.loads(done.stdout)
