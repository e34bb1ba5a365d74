"""What should be: lifetimes, generations and overrides of keys, without a clock or a broker."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from osrdyne.state.tracker import Status, TargetTracker
from osrdyne_pool.settings import Delays
from tests.unit.stand_ins import follower

UNBIND, STOP = 10.0, 5.0


def tracker_of(**overrides: Delays) -> TargetTracker:
    return TargetTracker(lambda key: overrides.get(key) or Delays(UNBIND, STOP))


def test_a_required_key_is_active_then_unbound_then_gone() -> None:
    tracker = tracker_of()
    tracker.require("42", 0.0)
    assert tracker.advance(9.9) == []
    assert [requirement.status for requirement in tracker.wanted.values()] == [Status.ACTIVE]
    assert tracker.advance(10.0) == ["42"]
    assert [requirement.status for requirement in tracker.wanted.values()] == [Status.UNBOUND]
    assert tracker.advance(14.9) == []
    assert tracker.advance(15.0) == ["42"]
    assert "42" not in tracker.wanted
    assert tracker.next_change() is None


def test_a_requirement_renews_the_lifetime_and_keeps_the_generation() -> None:
    tracker = tracker_of()
    first = tracker.require("42", 0.0)
    assert tracker.require("42", 8.0) == first == tracker.generation
    assert tracker.advance(17.9) == []
    assert tracker.advance(18.0) == ["42"]


def test_extra_lifetime_counts_for_a_new_key_and_for_a_renewed_one() -> None:
    tracker = tracker_of()
    tracker.require("42", 0.0, extra_lifetime=1.0)
    assert tracker.wanted["42"].until == 11.0
    tracker.require("42", 5.0, extra_lifetime=1.0)
    assert tracker.wanted["42"].until == 16.0


def test_a_key_that_is_kept_is_active_until_then_and_has_no_delay_of_its_own() -> None:
    tracker = tracker_of()
    first = tracker.keep("42", 3.0)
    assert tracker.wanted["42"].until == 3.0
    tracker.require("42", 2.0)
    assert tracker.keep("42", 5.0) == first
    assert tracker.wanted["42"].until == 12.0
    assert tracker.advance(12.0) == ["42"]
    assert [requirement.status for requirement in tracker.wanted.values()] == [Status.UNBOUND]
    assert tracker.keep("42", 20.0) == tracker.generation > first
    assert [requirement.status for requirement in tracker.wanted.values()] == [Status.ACTIVE]


def test_a_start_of_a_key_that_is_only_kept_does_not_count() -> None:
    tracker = tracker_of()
    tracker.keep("42", 3.0)
    assert not tracker.renew_on_worker_start("42", 1.0)
    assert tracker.wanted["42"].until == 3.0
    # After a request it does, as always.
    tracker.require("42", 2.0)
    assert tracker.renew_on_worker_start("42", 2.5)


def test_to_keep_a_key_that_was_required_changes_nothing_about_its_worker() -> None:
    tracker = tracker_of()
    tracker.require("42", 0.0)
    tracker.keep("42", 30.0)
    assert tracker.start_counts("42")


def test_an_earlier_end_never_replaces_a_later_one() -> None:
    tracker = tracker_of()
    tracker.require("42", 0.0, extra_lifetime=100.0)
    tracker.require("42", 1.0)
    tracker.require("42", 1.0, found_unbound=True)
    assert tracker.wanted["42"].until == 110.0


def test_a_key_found_unbound_is_asserted_again_although_it_was_active() -> None:
    tracker = tracker_of()
    first = tracker.require("42", 0.0)
    second = tracker.require("42", 0.0, found_unbound=True)
    assert second > first
    assert tracker.wanted["42"].generation == second


def test_requiring_an_unbound_key_makes_it_active_under_a_new_generation() -> None:
    tracker = tracker_of()
    tracker.require("42", 0.0)
    tracker.advance(10.0)
    stepped_down = tracker.generation
    assert tracker.require("42", 11.0) > stepped_down
    assert tracker.wanted["42"].status is Status.ACTIVE
    assert tracker.advance(20.9) == []


def test_a_late_look_does_not_lengthen_a_life() -> None:
    tracker = tracker_of()
    tracker.require("42", 0.0)
    assert tracker.advance(12.0) == ["42"]
    assert tracker.wanted["42"].until == 15.0
    tracker.require("7", 20.0)
    assert tracker.advance(100.0) == ["42", "7", "7"]


def test_a_key_with_an_override_has_its_own_delays() -> None:
    tracker = tracker_of(short=Delays(1.0, 2.0))
    tracker.require("short", 0.0)
    tracker.require("42", 0.0)
    assert tracker.next_change() == 1.0
    assert tracker.advance(1.0) == ["short"]
    assert tracker.advance(3.0) == ["short"]
    assert list(tracker.wanted) == ["42"]


def test_the_generation_wraps_at_64_bits() -> None:
    tracker = tracker_of()
    tracker._generation = (1 << 64) - 1
    assert tracker.require("42", 0.0) == 0


def test_a_key_that_is_renewed_for_ever_takes_no_more_room() -> None:
    tracker = tracker_of()
    for step in range(10_000):
        tracker.require("42", step / 100)
    assert len(tracker._deadlines) < 200
    assert tracker.advance(99.99 + UNBIND) == ["42"]


quarters = st.integers(0, 60).map(lambda count: count / 4)
operations = st.lists(
    st.one_of(
        st.tuples(st.just("require"), quarters, st.sampled_from("abc"), st.sampled_from((0.0, 1.0)), st.booleans()),
        st.tuples(st.just("advance"), quarters),
    ),
    max_size=40,
)


class Naive:
    """The same rules by looking at every key."""

    def __init__(self) -> None:
        self.keys: dict[str, tuple[Status, float]] = {}

    def require(self, key: str, now: float, extra: float) -> None:
        status, until = self.keys.get(key, (Status.UNBOUND, 0.0))
        mine = now + extra + UNBIND
        self.keys[key] = (Status.ACTIVE, max(mine, until) if status is Status.ACTIVE else mine)

    def advance(self, now: float) -> None:
        for key, (status, until) in list(self.keys.items()):
            if status is Status.ACTIVE and until <= now:
                status, until = Status.UNBOUND, until + STOP
                self.keys[key] = status, until
            if status is Status.UNBOUND and until <= now:
                del self.keys[key]


@given(operations)
def test_the_tracker_agrees_with_a_naive_model(steps: list[tuple[object, ...]]) -> None:
    tracker, naive, now = tracker_of(), Naive(), 0.0
    for kind, pause, *rest in steps:
        assert isinstance(pause, float)
        now += pause
        before = {key: requirement.status for key, requirement in tracker.wanted.items()}
        generation = tracker.generation
        if kind == "require":
            key, extra, found = rest
            assert isinstance(key, str)
            assert isinstance(extra, float)
            given_out = tracker.require(key, now, extra_lifetime=extra, found_unbound=bool(found))
            naive.require(key, now, extra)
            assert given_out == tracker.wanted[key].generation <= tracker.generation
            assert (given_out > generation) == (bool(found) or before.get(key) is not Status.ACTIVE)
        else:
            changed = tracker.advance(now)
            naive.advance(now)
            assert (tracker.generation > generation) == bool(changed)
            due = tracker.next_change()
            assert due is None or due > now
        assert {
            key: (requirement.status, requirement.until) for key, requirement in tracker.wanted.items()
        } == naive.keys
        ends = [requirement.until for requirement in tracker.wanted.values()]
        # It may look too early, never too late.
        assert not ends or (tracker.next_change() or 0.0) <= min(ends)


def test_a_key_steps_down_in_time_after_old_deadlines_of_others_were_dropped() -> None:
    # Given keys whose later deadlines were noted first: their order among the deadlines is not that of the keys
    lifetimes = {str(number): 100.0 + 7 * (number * 37 % 64) for number in range(64)}
    tracker = TargetTracker(lambda key: Delays(lifetimes.get(key, 1000.0), STOP))
    for key in lifetimes:
        tracker.require(key, 0.0)
    # When another key is renewed so often that its old deadlines are dropped
    for renewal in range(1000):
        tracker.require("busy", renewal / 1000)
        assert len(tracker._deadlines) <= 65 + 4 * len(tracker.wanted)
    # Then each key steps down when it is due
    for key, lifetime in sorted(lifetimes.items(), key=lambda lifetime: lifetime[1]):
        assert tracker.next_change() == lifetime
        assert tracker.advance(lifetime) == [key]
        assert tracker.advance(lifetime + STOP) == [key]


def never(_: str) -> bool:
    return False


def test_room_is_made_by_the_keys_that_are_unused_for_longest() -> None:
    tracker = tracker_of()
    for at, key in enumerate("abcd"):
        tracker.require(key, float(at))
    before = tracker.generation

    assert tracker.make_room(4, 8.0, idle=6.0, busy=never) == ["a"]
    assert list(tracker.wanted) == ["b", "c", "d"]
    assert tracker.generation == before + 1
    assert tracker.make_room(4, 8.0, idle=6.0, busy=never) == []


def test_an_unbound_key_counts_from_its_last_use_too() -> None:
    tracker = tracker_of()
    tracker.require("old", 0.0)
    tracker.require("new", 3.0)
    tracker.advance(11.0)
    assert tracker.wanted["old"].status is Status.UNBOUND

    assert tracker.make_room(2, 11.0, idle=1.0, busy=never) == ["old"]


def test_keys_that_are_used_busy_or_have_windows_do_not_give_way() -> None:
    tracker = tracker_of(warm=Delays(UNBIND, STOP, ("mon 00:00-24:00",)))
    for key, at in (("used", 5.0), ("busy", 0.0), ("warm", 0.0)):
        tracker.require(key, at)

    assert tracker.make_room(1, 8.0, idle=6.0, busy=lambda key: key == "busy") == []
    assert len(tracker.wanted) == 3


def test_a_part_of_a_large_pool_is_kept_free_by_idle_keys_only() -> None:
    tracker = tracker_of()
    for number in range(14):
        tracker.require(str(number), float(number))

    assert tracker.make_room(16, 12.0, idle=10.0, busy=never) == ["0"]
    for number in range(20, 23):
        tracker.require(str(number), 12.0)
    assert tracker.make_room(16, 12.0, idle=11.9, busy=never) == []


def test_a_key_with_a_span_steps_down_and_is_active_again_through_the_span() -> None:
    tracker = tracker_of(a=Delays(UNBIND, STOP, prewarm=((60.0, 70.0), (120.0, 125.0))))
    tracker.require("a", 0.0)
    assert tracker.advance(15.0) == ["a", "a"]
    assert tracker.wanted == {}
    assert tracker.next_change() == 60.0
    # When the span begins, the key is active until its end, and its stop delay follows
    assert tracker.advance(60.0) == ["a"]
    assert (tracker.wanted["a"].status, tracker.wanted["a"].until) == (Status.ACTIVE, 70.0)
    assert tracker.advance(75.0) == ["a", "a"]
    assert tracker.wanted == {}
    # Then the next span counts from the same activity, and after the last one nothing is left to do
    assert tracker.next_change() == 120.0
    assert tracker.advance(120.0) == ["a"]
    assert tracker.wanted["a"].until == 125.0
    assert tracker.advance(1000.0) == ["a", "a"]
    assert tracker.next_change() is None


def test_activity_before_a_span_or_in_it_moves_all_spans() -> None:
    tracker = tracker_of(a=Delays(UNBIND, STOP, prewarm=((60.0, 70.0),)))
    tracker.require("a", 0.0)
    tracker.require("a", 50.0)
    assert tracker.advance(59.9) == []
    assert tracker.advance(65.0) == ["a", "a"]
    assert tracker.advance(110.0) == ["a"]
    tracker.require("a", 112.0)
    assert tracker.wanted["a"].until == 122.0
    assert tracker.advance(171.0) == ["a", "a"]
    assert tracker.advance(172.0) == ["a"]
    assert tracker.wanted["a"].until == 182.0


async def test_activity_in_a_span_ends_it_and_the_clock_looks_earlier() -> None:
    tracker = tracker_of(a=Delays(UNBIND, STOP, prewarm=((60.0, 200.0),)))
    changed = follower(tracker.changes)
    tracker.require("a", 0.0)
    tracker.advance(15.0)
    tracker.advance(60.0)
    await changed.take(0.0)
    tracker.require("a", 70.0)
    # Then its delays count from the activity, not from the span's end
    assert tracker.wanted["a"].until == tracker.next_change() == 80.0
    assert await changed.take(0.0) == ["a"]


def test_activity_in_a_span_does_not_shorten_a_window() -> None:
    tracker = tracker_of(a=Delays(UNBIND, STOP, prewarm=((60.0, 200.0),)))
    tracker.require("a", 0.0)
    tracker.advance(60.0)
    tracker.keep("a", 500.0)
    tracker.require("a", 70.0)
    assert tracker.wanted["a"].until == 500.0


def test_a_span_that_is_over_when_the_clock_comes_late_is_left_out() -> None:
    tracker = tracker_of(a=Delays(UNBIND, STOP, prewarm=((60.0, 70.0), (120.0, 125.0))))
    tracker.require("a", 0.0)
    assert tracker.advance(80.0) == ["a", "a"]
    assert tracker.wanted == {}
    assert tracker.next_change() == 120.0


def test_a_worker_that_starts_in_a_span_does_not_count_as_activity() -> None:
    tracker = tracker_of(a=Delays(UNBIND, STOP, prewarm=((60.0, 70.0),)))
    tracker.require("a", 0.0)
    tracker.advance(15.0)
    tracker.advance(60.0)
    assert not tracker.renew_on_worker_start("a", 61.0)
    assert tracker.wanted["a"].until == 70.0


@given(st.lists(st.integers(1, 200), min_size=1, max_size=30))
def test_a_key_with_spans_is_wanted_at_exactly_the_times_that_its_settings_say(gaps: list[int]) -> None:
    spans = ((30.0, 70.0), (90.0, 100.0))
    tracker = tracker_of(a=Delays(UNBIND, STOP, prewarm=spans))
    now = 0.0
    for gap in gaps:
        tracker.require("a", now)
        while (due := tracker.next_change()) is not None and due <= now + gap:
            tracker.advance(due)
        kept = [(0.0, UNBIND + STOP), *((begin, end + STOP) for begin, end in spans)]
        assert ("a" in tracker.wanted) == any(begin <= gap < end for begin, end in kept)
        now += gap


def test_a_key_with_spans_does_not_give_way() -> None:
    tracker = tracker_of(spans=Delays(UNBIND, STOP, prewarm=((60.0, 70.0),)))
    tracker.require("spans", 0.0)
    tracker.require("plain", 1.0)
    assert tracker.make_room(1, 9.0, idle=5.0, busy=lambda _: False) == ["plain"]
