"""The slots of a client: matching, staleness, capacity, without any broker."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule

from osrdyne_calls.errors import NoFreeSlot
from osrdyne_calls.slots import Slots


def slots_of(size: int, first_sequence: int = 0) -> Slots[str]:
    return Slots(size, "c0ffee", first_sequence=first_sequence)


def test_a_reply_finds_its_call_and_frees_the_slot() -> None:
    slots = slots_of(1)
    first = slots.take("first", now=0, deadline=10)
    assert slots.match(first) == "first"
    assert slots.taken == 0
    assert slots.take("second", now=0, deadline=10) != first


def test_a_correlation_id_names_client_slot_and_sequence() -> None:
    slots = slots_of(2, first_sequence=0xABCDEF01)
    assert slots.take("a", now=0, deadline=1) == "c0ffee-0000-abcdef01"
    assert slots.take("b", now=0, deadline=1) == "c0ffee-0001-abcdef02"


def test_no_free_slot_is_an_error_that_names_the_number() -> None:
    slots = slots_of(2)
    for name in ("a", "b"):
        slots.take(name, now=0, deadline=10)
    with pytest.raises(NoFreeSlot, match="all 2 slots"):
        slots.take("c", now=9.9, deadline=20)


def test_a_slot_past_its_deadline_is_taken_again_only_when_all_are_taken() -> None:
    slots = slots_of(2)
    late = slots.take("late", now=0, deadline=1)
    slots.take("b", now=5, deadline=10)
    # Not swept before it is needed
    assert slots.taken == 2
    assert slots.take("c", now=5, deadline=10)
    # The answer to the swept call is stale, whichever call has its slot now
    assert slots.match(late) is None
    assert slots.stale == 1
    assert slots.taken == 2


def test_an_abandoned_slot_is_freed_by_its_late_reply() -> None:
    slots = slots_of(1)
    given_up = slots.take("a", now=0, deadline=10)
    slots.abandon(given_up)
    assert slots.taken == 1
    assert slots.match(given_up) is None
    assert (slots.stale, slots.taken) == (1, 0)


def test_an_abandoned_slot_is_swept_before_its_deadline() -> None:
    slots = slots_of(1)
    slots.abandon(slots.take("a", now=0, deadline=1000))
    assert slots.take("b", now=0, deadline=1000)


def test_a_second_reply_is_stale() -> None:
    slots = slots_of(4)
    one = slots.take("a", now=0, deadline=10)
    assert slots.match(one) == "a"
    assert slots.match(one) is None
    assert slots.stale == 1


def test_the_sequence_number_wraps_at_32_bits() -> None:
    slots = slots_of(1, first_sequence=0xFFFFFFFF)
    last = slots.take("last", now=0, deadline=1)
    assert last.endswith("-ffffffff")
    assert slots.match(last) == "last"
    first = slots.take("first", now=0, deadline=1)
    assert first.endswith("-00000000")
    assert slots.match(last) is None
    assert slots.match(first) == "first"


@pytest.mark.parametrize(
    "foreign",
    [None, b"c0ffee-0000-00000000", "", "c0ffee", "c0ffee-", "c0ffee-zzzz-00000000", "c0ffee--001-00000000",
     "c0ffee-00ff-00000000", "decaf-0000-00000000", "c0ffee-cast-1", 7],
)  # fmt: skip
def test_a_reply_that_names_no_slot_of_this_client_is_foreign(foreign: object) -> None:
    slots = slots_of(3)
    slots.take("a", now=0, deadline=1)
    assert slots.match(foreign) is None
    assert (slots.foreign, slots.stale, slots.taken) == (1, 0, 1)


@pytest.mark.parametrize("size", [0, -1, 65_537])
def test_a_number_of_slots_that_an_id_cannot_name_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match="1 to 65536"):
        Slots(size, "c")


class AnyHistory(RuleBasedStateMachine):
    """Whatever is taken, answered twice, given up or timed out in whatever order: the model below is what holds."""

    ids = Bundle("ids")

    @initialize(size=st.integers(1, 5), first=st.sampled_from([0, 7, 0xFFFFFFFE]))
    def start(self, size: int, first: int) -> None:
        self.slots: Slots[int] = Slots(size, "model", first_sequence=first)
        self.size = size
        self.now = 0.0
        self.count = 0
        #: id -> (entry, deadline) of every call that still waits
        self.waiting: dict[str, tuple[int, float]] = {}
        self.seen: set[str] = set()

    @rule(target=ids, patience=st.floats(0.5, 5))
    def take(self, patience: float) -> object:
        self.count += 1
        still = [waiter for waiter in self.waiting.values() if waiter[1] > self.now]
        try:
            correlation_id = self.slots.take(self.count, now=self.now, deadline=self.now + patience)
        except NoFreeSlot:
            # Only when every slot waits for a reply in time
            assert len(still) == self.size
            return multiple()
        assert correlation_id not in self.seen
        assert len(still) < self.size
        self.seen.add(correlation_id)
        self.waiting[correlation_id] = (self.count, self.now + patience)
        return correlation_id

    @rule(correlation_id=ids)
    def reply(self, correlation_id: str) -> None:
        stale = self.slots.stale
        entry = self.slots.match(correlation_id)
        expected = self.waiting.pop(correlation_id, None)
        if entry is None:
            # Dropped and counted: no caller waits, or the deadline passed and the slot was swept
            assert self.slots.stale == stale + 1
            assert expected is None or expected[1] <= self.now
        else:
            assert expected is not None
            assert entry == expected[0]

    @rule(correlation_id=consumes(ids))
    def give_up(self, correlation_id: str) -> None:
        self.slots.abandon(correlation_id)
        self.waiting.pop(correlation_id, None)

    @rule(correlation_id=consumes(ids))
    def no_reply_can_come(self, correlation_id: str) -> None:
        self.slots.release(correlation_id)
        self.waiting.pop(correlation_id, None)

    @rule(seconds=st.floats(0.1, 3))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @invariant()
    def capacity_never_leaks(self) -> None:
        if not hasattr(self, "slots"):
            return
        assert 0 <= self.slots.taken <= self.size
        assert {entry for entry, deadline in self.waiting.values() if deadline > self.now} <= set(self.slots.waiting())

    def teardown(self) -> None:
        if not hasattr(self, "slots"):
            return
        # Once every deadline has passed, all slots can be had again.
        self.now += 1000
        for _ in range(self.size):
            self.slots.take(0, now=self.now, deadline=self.now + 1)
        assert self.slots.taken == self.size


AnyHistory.TestCase.settings = settings(max_examples=200, stateful_step_count=60, deadline=None)
test_any_history_matches_the_model = AnyHistory.TestCase
