"""The checker is checked: mistakes planted into daemon and worker are seen."""

from __future__ import annotations

import pytest

from simulation import runner
from simulation.planted import MISTAKES, planted

#: Seeds within which a mistake must be seen; some need a rare meeting of requests and faults.
_SEEDS = 300
#: A seed that sees a mistake which few seeds see. It is tried first, which only saves time: all others come after it.
_SEEN_BY = {
    "a returned message counts as taken": 97,
    "a refused message counts as taken": 790,
    "unacknowledged messages do not count": 170,
    "samples are taken at once, before the broker's statistics can know": 123,
    "orphans are handled one after the other": 20,
    "an orphan does not prove that its key is unbound": 191,
    "an expired request is forwarded": 151,
    "a group is stopped while it holds requests": 25,
    "activity of an unknown key wakes it": 5,
    "one group's failure ends the session": 11,
    "a group that consumes nothing is left as it is": 45,
    "a request that a worker has for ever is left with it": 5078,
    "the budget of new keys is never spent": 40,
    "requests wait for workers that never start": 38,
    "what waits for workers that never start is left in its queue": 59,
    "a worker that had started counts as one that had not": 59,
    "a request that is taken back is left in its queue, too": 31,
    "a look of a session that ended counts as a worker's": 18033071,
    "the daemon gives back what it takes for a worker's, until the limit": 18033071,
    "a worker that died at work waits as if it could not start": 88,
    "a request that failed runs beside others": 7,
    "a request that failed runs before all others": 27,
    "a request that failed waits for ever": 27,
    "a request that failed is run while others that failed are in hand": 67,
    "requests that failed are run as the broker sends them": 327,
    "what failed least is run before what came back first": 7417787,
    "what goes to one key's queue holds up what goes to all others": 20,
}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_checker_sees_when(mistake: str) -> None:
    likely = _SEEN_BY.get(mistake, 1)
    with planted(mistake):
        assert any(runner.result_of(seed).findings for seed in (likely, *range(1, _SEEDS + 1)))
