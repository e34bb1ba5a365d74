"""What a program logs that is started while something that it needs is away for two minutes of virtual time."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

#: Seconds for which what a program needs is away, and for which the program goes on when it is back.
AWAY_SECONDS, AFTER_SECONDS = 120.0, 60.0
#: Where it is, as errors name it.
PLACE = "127.0.0.1:1"
#: The three kinds of lines (docs/decisions/0055).
BEGINS, LASTS, ENDS = "cannot be used; ", "still cannot be used; ", "can be used again"
_SAID = re.compile(rf"(?P<what>.+?) (?P<kind>{LASTS}|{BEGINS}|{ENDS})")


@dataclass(frozen=True, slots=True)
class Rig:
    """What a program that is started may use of its test."""

    directory: Path
    patch: pytest.MonkeyPatch


@dataclass(frozen=True, slots=True)
class WaitingProgram:
    """A program that waits for what is away at its start."""

    #: Starts it, has what it needs come back `AWAY_SECONDS` later, and ends it after `AFTER_SECONDS` more.
    live: Callable[[Rig], Coroutine[Any, Any, None]]
    #: What it says cannot be used: "the broker".
    needs: set[str]
    #: What each reason names.
    place: str = PLACE


def assert_three_kinds_of_lines(
    records: Sequence[logging.LogRecord], needs: set[str], place: str = PLACE, *, late: float = 15.0
) -> None:
    """Raise AssertionError where a program logged another warning, too many lines, none, or one without a reason.

    `needs` and `place` are as in `WaitingProgram`. `late`: seconds within which it notices that what it needs is back.
    """
    ours = [record for record in records if record.name.startswith("osrdyne")]
    lines: dict[str, list[str]] = {}
    for record in ours:
        if record.levelno < logging.WARNING:
            continue
        said = _SAID.match(record.getMessage())
        assert said, f"this is none of the three kinds: {record.getMessage()}"
        lines.setdefault(said["what"], []).append(said["kind"])
        given = record.__dict__
        if said["kind"] == ENDS:
            assert AWAY_SECONDS * 0.9 < given["seconds"] < AWAY_SECONDS + late
        else:
            shown = f"{record.getMessage()} {given['reason']}"
            assert place in shown
            assert " object at 0x" not in shown
    assert lines.keys() == needs
    for what, kinds in lines.items():
        assert kinds in ([BEGINS, *[LASTS] * number, ENDS] for number in (1, 2)), (what, kinds)
    said_often = [line for line, times in Counter(record.getMessage() for record in ours).items() if times > 2]
    assert said_often == []
