"""The checker of jobs finds each mistake that is planted into the product's code, and names it rightly."""

from __future__ import annotations

import re

import pytest

from simulation.jobs import runner
from simulation.jobs.planted import MISTAKES, planted

#: A mistake must be found by one of this many seeds.
_MOST_SEEDS = 100
#: Mistake -> pattern of its finding, and a seed that finds it. That seed is tried first, to save time.
_FINDINGS = {
    "a run that lost its lock writes its outcome": ("ended as lost, and again", 2),
    "a run that lost its lock writes its effects": ("^overlapping: effects of the runs", 2),
    "redo casts nothing again": ("^lost: job", 1),
    "a lock is taken over before its lease ended": ("s before its lease ended", 2),
    "a run begins without the lock": ("s before its lease ended", 2),
    "a job that was registered during a run is taken for done by it": ("is done, and no run did it", 1),
    "failed jobs wait until no new ones are due": ("takes a job that was due later than job", 63),
    "a running job does not hear that it was cancelled": ("^lost: job .* is running in the end", 5),
    "a job that was cancelled is begun again": ("was cancelled while it ran, and is", 4),
    "a job stays running when its worker dies": ("runs, and its run .* has no lock", 2),
    "leases are not renewed": ("was lost, although its worker was well", 2),
    "a run that was lost is not an attempt": ("had .* runs, and counts", 3),
    "the newest job runs first": ("began in another order", 2),
    "jobs that coalesce have a run each": ("that were registered during run .* began with the runs", 1),
    "a job that failed is due at once": (r"waits 0\.0 s after attempt 1", 5),
    "a run that its worker stopped counts as cancelled by a person": ("no person cancelled it", 24),
    "a run whose lease ended counts as done": ("is done, and (no run did it|its handler has not)", 2),
    "a job is committed before the caller's transaction is": ("what is written with them", 77),
    "a handler begins whatever has become of its lease": ("the handler of run .* began after its lease", 239),
}


def test_each_mistake_in_jobs_has_a_finding_of_its_own() -> None:
    assert _FINDINGS.keys() == MISTAKES.keys()


@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_checker_of_jobs_finds_that(mistake: str) -> None:
    finding, first_seed = _FINDINGS[mistake]
    with planted(mistake):
        assert any(
            re.search(finding, text)
            for seed in (first_seed, *range(1, _MOST_SEEDS + 1))
            for text in runner.result_of(seed).findings
        )
