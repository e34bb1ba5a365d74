"""The checker is checked: mistakes planted into the daemon are seen."""

from __future__ import annotations

import pytest

from simulation import runner
from simulation.planted import MISTAKES, planted

#: Seeds within which a mistake must be seen; some need a rare meeting of requests and faults.
_SEEDS = 300
#: The first seed that sees a rare mistake. It is tried first, and only saves time: all others are tried after it.
_SEEN_BY = {
    "a returned message counts as taken": 97,
    "an expired request is forwarded": 151,
    "an orphan is no proof that its key is unbound": 191,
    "samples are taken at once, before the broker's statistics can know": 123,
    "unacknowledged messages do not count": 170,
}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_checker_sees_when(mistake: str) -> None:
    likely = _SEEN_BY.get(mistake, 1)
    with planted(mistake):
        assert any(runner.result_of(seed).findings for seed in (likely, *range(1, _SEEDS + 1)))
