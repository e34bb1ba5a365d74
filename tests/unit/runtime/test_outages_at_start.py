"""Each program that is started while what it needs is away for two minutes: it waits, and says the same three kinds
of lines, or it ends at once with a line that says why.
"""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from tests.unit.runtime import away_brokers, away_jobs, away_relay
from tests.unit.runtime.away_at_start import Rig, Waiting, assert_three_kinds_of_lines

WAITING: dict[str, Waiting] = {**away_brokers.PROGRAMS, **away_relay.PROGRAMS, **away_jobs.PROGRAMS}


@pytest.mark.looptime
@pytest.mark.parametrize("name", WAITING)
async def test_a_program_that_waits_at_its_start_says_the_same_three_kinds_of_lines(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    program = WAITING[name]
    await program.live(Rig(tmp_path, monkeypatch))

    assert_three_kinds_of_lines(caplog.records, program.needs, program.place)
