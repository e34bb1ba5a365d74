"""The checker of the relay is checked: mistakes planted into the product's code are seen, each as what it is."""

from __future__ import annotations

import re

import pytest

from simulation.relay import runner
from simulation.relay.planted import MISTAKES, planted

#: Seeds within which a mistake must be seen.
_SEEDS = 140
#: What a finding says, and the first seed that sees it: it is tried first, and only saves time.
_SEEN = {
    "two nodes get one request": ("^twice", 1),
    "two workers of one node get one request": ("^twice", 10),
    "a request of before a loss is run after it": ("^twice", 3),
    "a call that has ended leaves no trace": ("^twice", 251),
    "a request is given up without looking whether it was collected": ("NotCollected .*, and ran", 1),
    "the serving node does not beat": ("PeerGone, and there was no cause", 1),
    "the caller does not beat": ("PeerGone, and there was no cause", 1),
    "a silent peer is waited for": ("^lost: .* never ended", 6),
    "the serving node does not see that a call is not wanted": ("its worker did not learn it$", 16),
    "a request has no time to live": ("has no time to live", 1),
    "an operation is not tried again": ("RedisAway after an outage of", 3),
    "pulses are relied upon": ("^lost", 1),
    "the list of an endpoint is not read": ("^lost", 1),
    "a caller does not see that its request is lost": ("after the loss at", 4),
    "a worker does not hear that its request is lost": ("did not learn of the loss", 4),
    "a request that may have run is written again after a loss": ("^twice", 216),
    "a worker that goes away takes a request along": ("NotCollected, and there was no cause", 8),
    "a claim is repeated by another token": ("PeerGone, and there was no cause", 8),
}


def test_each_mistake_in_the_relay_has_a_finding_of_its_own() -> None:
    assert _SEEN.keys() == MISTAKES.keys()


#: These take ten seconds each, the others one.
_LONG = ("a call that has ended leaves no trace", "a worker that goes away takes a request along")


@pytest.mark.parametrize(
    "mistake", [pytest.param(mistake, marks=pytest.mark.full) if mistake in _LONG else mistake for mistake in MISTAKES]
)
def test_the_checker_of_the_relay_sees_when(mistake: str) -> None:
    finding, likely = _SEEN[mistake]
    with planted(mistake):
        assert any(
            re.search(finding, text)
            for seed in (likely, *range(1, _SEEDS + 1))
            for text in runner.result_of(seed).findings
        )
