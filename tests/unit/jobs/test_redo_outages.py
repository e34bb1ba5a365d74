"""When a redo process says that the broker can be used again."""

from __future__ import annotations

from typing import Any

import pytest

from osrdyne_jobs.redo import Redo, Scan
from osrdyne_pool.settings import RedoSettings


def test_the_broker_can_be_used_again_once_a_cast_got_through(caplog: pytest.LogCaptureFixture) -> None:
    nothing: Any = None
    redo = Redo(nothing, nothing, RedoSettings(), name="one")

    def said() -> list[str]:
        found = [record.message.partition(";")[0].partition(" seconds=")[0] for record in caplog.records]
        caplog.clear()
        return [line for line in found if "broker" in line]

    redo._log(Scan(not_cast=3))
    assert said() == ["the broker cannot be used"]
    redo._log(Scan())  # stands by, or has nothing due
    assert said() == []
    redo._log(Scan(casts=1))
    assert said() == ["the broker can be used again"]
