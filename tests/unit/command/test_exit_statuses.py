"""Every command ends with the exit statuses that docs/reference/cli.md says, with one meaning each."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

import steps
from osrdyne_command.program import registered
from osrdyne_runtime.console.output import CANNOT, NO, NOT_READ, USAGE
from testbed.command_line import osrdyne
from tests.unit.command.every_command import COMMANDS, DONE, words_of

PAGE = Path(steps.ROOT, "docs/reference/cli.md").read_text()
#: What each exit status means, as the page says.
MEANING = {int(number): text for number, text in re.findall(r"^\| (\d+) \| (.+?) \|$", PAGE, re.MULTILINE)}


def status(meaning: str) -> int:
    """The one status whose meaning on the page begins so."""
    (found,) = [number for number, text in MEANING.items() if text.startswith(meaning)]
    return found


def test_the_page_has_every_status_that_commands_share() -> None:
    assert set(MEANING) == {0, NO, CANNOT, USAGE, os.EX_SOFTWARE, 130, NOT_READ}


@pytest.mark.parametrize("command", ["", *sorted(registered()), *COMMANDS])
def test_an_unknown_option_is_wrong_usage_of_every_command(command: str) -> None:
    done = osrdyne(*command.split(), "--no-such-option")

    assert done.code == status("wrong usage")
    assert "No such option: --no-such-option" in done.err
    assert done.out == b""


@pytest.mark.parametrize(
    "words", [["no-such"], ["bus", "no-such"], ["jobs"], ["jobs", "show", "x"], ["pipeline", "tables"]]
)
def test_unknown_or_missing_commands_and_missing_or_impossible_values_are_wrong_usage(
    words: list[str],
) -> None:
    assert osrdyne(*words).code == status("wrong usage")


@pytest.mark.parametrize("command", sorted(set(COMMANDS) - DONE))
def test_what_cannot_be_reached_or_read_could_not_be_done_by_any_command(command: str, folder: Path) -> None:
    done = osrdyne(*command.split(), *words_of(command, folder, "http://127.0.0.1:1"))

    assert done.code == status("it could not be asked or done"), done
    assert done.line


@pytest.mark.parametrize("command", sorted(DONE))
def test_what_is_done_ends_with_0(command: str, folder: Path, url: str) -> None:
    assert osrdyne(*command.split(), *words_of(command, folder, url)).code == status("done")
