"""The checker is checked: mistakes planted into the daemon are seen."""

from __future__ import annotations

import pytest

from simulation import runner
from simulation.planted import MISTAKES, planted

#: Seeds within which a mistake must be seen; some need a rare meeting of requests and faults.
_SEEDS = 300


@pytest.mark.timeout(600)
@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_checker_sees_when(mistake: str) -> None:
    with planted(mistake):
        assert any(runner.result_of(seed).findings for seed in range(1, _SEEDS + 1))
