"""What the daemon keeps of the ends of workers, and what it takes from them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from osrdyne.drivers.base import How, WorkerEnd
from osrdyne.state import worker_ends
from osrdyne.state.delivery_history import DeliveryHistory, PastDelivery
from osrdyne.state.worker_ends import EndFact, WorkerEnds, had_started

EXIT = WorkerEnd(How.EXIT, 1, "w")


def fact(key: str = "42", at: float = 0.0, end: WorkerEnd = EXIT, reason: str = "worker exited") -> EndFact:
    return EndFact(key, end, reason, None, None, at, failed=end.how is not How.STOPPED)


def test_the_last_ends_of_the_keys_that_ended_last_are_kept() -> None:
    ends = WorkerEnds()
    for number in range(5):
        ends.note(fact("old", number))
    for number in range(worker_ends.MOST_KEYS):
        ends.note(fact(f"key {number}"))
        if number == 50:
            ends.note(fact("old", 5))

    assert [end.at for end in ends.of("old")] == [3, 4, 5]
    assert ends.of("key 0") == ()
    assert len({end.key for end in ends.latest()}) == worker_ends.MOST_KEYS


def test_a_reason_is_that_of_the_last_failure_since_a_time() -> None:
    ends = WorkerEnds()
    ends.note(fact(at=5.0, reason="first"))
    ends.note(fact(at=9.0, reason="second"))
    ends.note(fact(at=12.0, end=WorkerEnd(How.STOPPED), reason="idle"))

    assert ends.why("42", since=6.0) == "second"
    assert ends.why("42", since=10.0) is None
    assert ends.why("42", since=None) is None, "the last end was requested"
    assert ends.why("other", since=0.0) is None


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, False),
        ({"said": {"w": 11.0}}, True),
        ({"said": {"": 11.0}}, True),
        ({"said": {"another": 11.0}}, False),
        # Workers without an identity say it alike: what was said before this run was of another.
        ({"said": {"": 9.0}}, False),
        ({"said": {"another": 11.0}, "end": WorkerEnd(How.EXIT, 1)}, True),
        # What it said before its last end was of another run.
        ({"said": {"w": 11.0}, "former": 12.0}, False),
        ({"served_at": 11.0}, True),
        ({"served_at": 9.0}, False),
        # The consumer may be that of another, or its own, and what it said was lost.
        ({"served_at": 11.0, "said": {"another": 5.0}}, None),
        ({"served_at": 11.0, "said": {"w": 5.0}}, None),
        ({"served_at": 9.0, "said": {"w": 5.0}}, False),
        ({"began": 4.0}, None),
        ({"began": None}, None),
        ({"began": None, "end": WorkerEnd(How.NO_START)}, False),
    ],
)
def test_whether_a_worker_had_started(changes: dict[str, object], expected: bool | None) -> None:
    given = {"said": {}, "former": 0.0, "began": 10.0, "since": 5.0, "served_at": None, "end": EXIT} | changes
    assert had_started(given.pop("end"), given.pop("said"), **given) is expected  # type: ignore[arg-type]


def test_an_end_is_an_event_with_what_is_known_and_nothing_else() -> None:
    assert fact().headers() == {"x-reason": "worker exited", "x-ended-worker": "w"}
    whole = replace(EXIT, seconds=1.5, output=("a", "b"), log="see")
    assert EndFact("42", whole, "r", False, 0, 0.0).headers() == {
        "x-reason": "r",
        "x-ended-worker": "w",
        "x-duration-ms": 1500,
        "x-started": 0,
        "x-held": 0,
        "x-output": "a\nb",
        "x-log": "see",
    }


def test_an_end_without_a_worker_is_a_start_that_failed() -> None:
    assert [fact(end=WorkerEnd(how)).event for how in (How.NO_START, How.MEMORY, How.STOPPED)] == [
        "start-failed",
        "worker-ended",
        "worker-ended",
    ]
    assert [WorkerEnd(how, code).short for how, code in ((How.EXIT, 0), (How.SIGNAL, 9), (How.MEMORY, None))] == [
        "exit 0",
        "signal 9",
        "memory",
    ]


def test_a_worker_holds_what_was_delivered_to_it_last_and_not_answered() -> None:
    history = DeliveryHistory()
    for request, workers in (("1", "a"), ("2", "ab"), ("3", "ba"), ("4", "a")):
        for worker in workers:
            history.add("42", request, PastDelivery(worker, 0))
    history.add("other", "5", PastDelivery("a", 0))
    history.forget("42", "4")

    assert (history.held_by("42", "a"), history.held_by("42", "b"), history.held_by("42", None)) == (2, 1, 0)
