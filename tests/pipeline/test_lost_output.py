"""Every command of `osrdyne-pipeline` where its output cannot be shown or written."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import NoReturn

import pytest
import typer

from osrdyne_pipeline.cli import app, main
from osrdyne_pipeline.errors import LakeError
from testbed import lost_output
from testbed.lost_output import CONDITIONS

COMMANDS = [" ".join(one) for one in lost_output.leaves(typer.main.get_command(app))]
#: What each needs to begin.
WORDS = {
    "ingest": ["events.jsonl"],
    "forget": ["--source", "events.jsonl"],
    "tables": [],
    "recommend": [],
    "report": [],
}
#: The exit status; the reader of standard output is gone, or its disk is full.
CODES = {"ascii": 1, "closed": 1, "gone": 141, "full": 2}


def test_every_command_is_tried_here() -> None:
    assert sorted(WORDS) == sorted(COMMANDS)


@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_ends_in_good_order_where_its_output_is_lost(
    command: str, condition: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def no_spark(*_: object, **__: object) -> NoReturn:
        raise LakeError("é is wrong")

    # Spark would take seconds each time, and is no part of this.
    monkeypatch.setattr(import_module(f"osrdyne_pipeline.commands.{command}"), "spark", no_spark)

    words = [command, *WORDS[command], "--pool", "core", "--lake", str(tmp_path / "é"), "--json"]
    done = lost_output.run(main, words, condition)

    assert done.code == CODES[condition], done
    assert "Traceback" not in done.err
    assert condition != "ascii" or "é" in json.loads(done.out)["error"]
    lost = "osrdyne-pipeline: standard output cannot be written: No space left on device"
    assert (lost in done.err) == (condition == "full")


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_the_help_of_a_command_does_so_too(command: str) -> None:
    done = lost_output.run(main, [*command.split(), "--help"], "full")

    assert (done.code, "Traceback" in done.err) == (2, False)
