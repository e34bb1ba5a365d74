"""`osrdyne-pipeline`, which `osrdyne pipeline` was once called, goes on for a release."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import steps

NOTICE = "osrdyne: `osrdyne-pipeline` is called `osrdyne pipeline` now; the next release has only that name\n"


def run(*words: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [str(steps.BIN / words[0]), *words[1:]], capture_output=True, text=True, check=False, env=steps.environment()
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("words", [["tables", "--pool", "core", "--json"], ["--help"]])
def test_the_old_name_does_the_same_and_names_the_new_one(words: list[str], tmp_path: Path) -> None:
    lake = ["--lake", str(tmp_path)] if len(words) > 1 else []

    status, out, said = run("osrdyne", "pipeline", *words, *lake)

    assert run("osrdyne-pipeline", *words, *lake) == (status, out, NOTICE + said)


def test_the_old_name_still_has_a_version() -> None:
    assert run("osrdyne-pipeline", "--version") == (0, run("osrdyne", "--version")[1], NOTICE)
