"""A simulated run leaves the logging of its process as it was: tests of other things may follow it."""

from __future__ import annotations

import logging

import pytest

from simulation.scenario import scenario
from simulation.world import simulate


def test_logs_are_as_before_after_a_run(caplog: pytest.LogCaptureFixture) -> None:
    simulate(scenario(1))
    logging.getLogger("osrdyne.daemon").warning("after the run")

    assert "after the run" in caplog.messages
