"""CONTRIBUTING.md names what there is: files, tests, tiers and folders."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import steps
import tiers
from osrdyne.drivers import registry

PAGE = Path(steps.ROOT, "CONTRIBUTING.md").read_text()


def test_every_test_that_the_page_runs_exists() -> None:
    named = re.findall(r"\.venv/bin/pytest (tests/[\w/.]+)", PAGE)

    assert len(named) >= 4
    assert [path for path in named if not Path(steps.ROOT, path).exists()] == []


def test_the_words_that_the_page_passes_to_make_test_are_taken() -> None:
    arguments = re.findall(r"make test ARGS='(.*?)'", PAGE)

    assert len(arguments) >= 3
    assert all(tiers.chosen(shlex.split(words))[0] for words in arguments)


def test_the_table_has_every_folder_of_the_tree() -> None:
    shown = {
        name for row in re.findall(r"^\| (\[.*?\)) \|", PAGE, re.MULTILINE) for name in re.findall(r"\[(.*?)\]", row)
    }
    folders = [Path(path).parts for path in steps.tracked() if "/" in path and not path.startswith(".")]

    assert shown == {"/".join(parts[: 2 if parts[0] in ("packages", "lab") else 1]) for parts in folders}


def test_the_entry_point_of_a_driver_has_the_group_that_the_daemon_reads() -> None:
    assert f'[project.entry-points."{registry.GROUP}"]' in PAGE
