"""Keys that come and go leave nothing behind in the daemon. A million of them: `python -m tests.simulation --soak`."""

from __future__ import annotations

import pytest

from osrdyne.values import Keyed
from tests.simulation.soak import soak


@pytest.mark.timeout(600)
def test_an_hour_of_keys_that_come_and_go_leaves_the_daemon_as_small_as_before() -> None:
    report = soak(400)
    assert report.answered == 400
    assert max(one.live for one in report.measurements) > 1
    assert report.measurements[-1].live == 0
    assert report.too_large() == []


@pytest.mark.timeout(600)
def test_what_is_never_forgotten_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Keyed, "remove", lambda self, key: None)
    found = soak(200).too_large()
    assert any("state.queues._values holds 2" in one for one in found)
