"""The replay of calls gives the events that a pool sends: by hand for small cases, and in general."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from osrdyne.commands.replay.simulated_pool import Circumstances, PastCall, PastEvent, Replay
from osrdyne.lifetime.window_rules import Schedule
from osrdyne_pool.settings import Delays

#: Milliseconds.
UNBIND, STOP, DEBOUNCE, INTERVAL, START, RUN = 600_000, 300_000, 1000, 7500, 2000, 50
#: A Thursday, as it began.
THURSDAY = 7 * 86_400_000


def circumstances(**changes: object) -> Circumstances:
    numbers = itertools.count(1)
    values: dict[str, object] = {
        "delays": lambda key: Delays(UNBIND, STOP),
        "debounce": DEBOUNCE,
        "statistics_interval": INTERVAL,
        "start": lambda: START,
        "run": RUN,
        "identity": lambda: f"id-{next(numbers)}",
        "daemon_id": "daemon",
        **changes,
    }
    return Circumstances(**values)  # type: ignore[arg-type]


def replay(*calls: tuple[int, str] | tuple[int, str, int], **changes: object) -> list[PastEvent]:
    one = Replay(circumstances(**changes))
    happened = list(one.run(PastCall(*call) for call in calls))
    # Nothing is kept of keys that are gone, and the tally is that of the events.
    assert one._keys == {}
    assert one.tally.events == len(happened)
    assert one.tally.cold == sum(event.event == "orphan-seen" for event in happened)
    return happened


def story(happened: Iterable[PastEvent]) -> list[tuple[int, str]]:
    return [(event.time_ms, event.event) for event in happened]


def count(happened: Iterable[PastEvent], event: str) -> int:
    return sum(record.event == event for record in happened)


#: The last sign of life of a call at 0 that starts its group: the burst that begins as its worker starts.
LAST = START + 6 + DEBOUNCE


def test_one_call_is_reported_from_its_arrival_to_the_end_of_its_queue() -> None:
    gone = LAST + UNBIND + STOP

    assert story(replay((0, "42"))) == [
        (0, "orphan-seen"),
        (6, "queue-ready"),
        (6, "group-started"),
        (8, "forwarded"),
        (2006, "started"),
        (2006, "request-received"),
        (2056, "finished"),
        (LAST + UNBIND, "unbound"),
        (gone + INTERVAL, "stopping"),
        (gone + INTERVAL, "group-stopped"),
        (gone + 3 * INTERVAL, "queue-deleted"),
    ]


def test_every_event_says_what_its_headers_would() -> None:
    happened = {event.event: event for event in replay((0, "42"))}

    worker = happened["started"].worker_id
    assert happened["orphan-seen"] == PastEvent("42", "orphan-seen", "id-1", 0, "daemon", "1")
    assert happened["finished"][3:] == (2056, worker, "1", "ok", 50)
    assert happened["request-received"][3:] == (2006, worker, "1", None, None)
    assert happened["group-stopped"][4:] == ("daemon", None, "idle", None)
    assert happened["stopping"].worker_id == worker != "daemon"


def test_a_call_is_warm_until_the_unbind_delay_is_over_and_cold_from_then_on() -> None:
    unbound = LAST + UNBIND

    assert count(replay((0, "42"), (unbound - 1, "42")), "orphan-seen") == 1
    assert count(replay((0, "42"), (unbound, "42")), "orphan-seen") == 2


def test_an_unbound_key_whose_group_still_runs_is_bound_again_and_served_at_once() -> None:
    again = LAST + UNBIND + STOP - 1

    happened = replay((0, "42"), (again, "42"))

    assert count(happened, "group-started") == 1
    assert story(happened)[7:13] == [
        (LAST + UNBIND, "unbound"),
        (again, "orphan-seen"),
        (again + 6, "queue-ready"),
        (again + 8, "forwarded"),
        (again + 8, "request-received"),
        (again + 58, "finished"),
    ]


@pytest.mark.parametrize(("late", "starts"), [(0, 1), (INTERVAL - 1, 1), (INTERVAL, 2), (3 * INTERVAL, 2)])
def test_a_call_on_the_way_out_keeps_the_group_until_that_is_stopped(late: int, starts: int) -> None:
    happened = replay((0, "42"), (LAST + UNBIND + STOP + late, "42"))

    assert (count(happened, "group-started"), count(happened, "finished"), count(happened, "queue-deleted")) == (
        starts,
        2,
        2 if late == 3 * INTERVAL else 1,
    )


def test_requests_that_wait_for_the_worker_are_served_in_their_order_one_at_a_time() -> None:
    happened = replay((0, "42", 500), (1000, "42", 300), (1500, "42", 10))

    assert [
        (event.time_ms, event.event, event.request_id) for event in happened if event.request_id and event.time_ms > 8
    ] == [
        (2006, "request-received", "1"),
        (2506, "finished", "1"),
        (2506, "request-received", "2"),
        (2806, "finished", "2"),
        (2806, "request-received", "3"),
        (2816, "finished", "3"),
    ]


def test_signs_of_life_keep_a_key_through_a_long_request() -> None:
    happened = replay((0, "42", 3 * UNBIND))

    assert count(happened, "alive") == 3 * UNBIND // 10_000 - 1
    assert count(happened, "orphan-seen") == count(happened, "unbound") == 1


def test_a_silent_long_request_is_unbound_under_way_and_found_before_its_group_is_stopped() -> None:
    happened = replay((0, "42", 3 * UNBIND), alive=10**9)

    begun, done = START + 6, START + 6 + 3 * UNBIND
    found = LAST + UNBIND + STOP + INTERVAL
    assert (begun, "request-received") in story(happened)
    assert story(happened)[6:9] == [(LAST + UNBIND, "unbound"), (found + 6, "queue-ready"), (found + UNBIND, "unbound")]
    assert (done, "finished") in story(happened)
    assert count(happened, "group-started") == 1


def test_keys_do_not_wait_for_one_another() -> None:
    together = replay((0, "a", 5000), (0, "b"))

    for key in "ab":
        alone = replay((0, key, 5000 if key == "a" else RUN))
        assert story(event for event in together if event.key == key) == story(alone)


def test_a_window_starts_its_group_before_any_call_and_ends_without_a_delay() -> None:
    begin, end = THURSDAY + 3_600_000, THURSDAY + 7_200_000
    warm = Schedule({"42": Delays(UNBIND, STOP, ("thu 01:00-02:00",))})

    happened = replay((THURSDAY, "7"), (begin + 5000, "42"), (end, "7"), warm=warm)
    unasked = replay((THURSDAY, "7"), (end, "7"), warm=warm, delays=lambda key: Delays(10 * UNBIND, STOP))

    assert [event.time_ms for event in unasked if (event.key, event.event) == ("42", "unbound")] == [end]
    assert story(event for event in happened if event.key == "42") == [
        (begin + 6, "queue-ready"),
        (begin + 6, "group-started"),
        (begin + 2006, "started"),
        (begin + 5000, "request-received"),
        (begin + 5050, "finished"),
        (end, "unbound"),
        (end + STOP + INTERVAL, "stopping"),
        (end + STOP + INTERVAL, "group-stopped"),
        (end + STOP + 3 * INTERVAL, "queue-deleted"),
    ]


def test_a_span_starts_its_group_again_so_long_after_the_last_call() -> None:
    spans = {"42": Delays(UNBIND, STOP, prewarm=((3_600_000, 3_900_000),))}

    happened = replay((THURSDAY, "42"), (THURSDAY + 3_700_000, "42"), delays=lambda key: spans[key])

    again = [fact for fact in story(happened) if THURSDAY + 3_000_000 < fact[0] < THURSDAY + 4_000_000]
    last = story(happened)[-1]
    assert again[0][1] == "queue-ready"
    assert again[1][1] == "group-started"
    assert THURSDAY + 3_600_000 <= again[0][0] < THURSDAY + 3_700_000
    assert (THURSDAY + 3_700_000, "request-received") in again
    assert "orphan-seen" not in [event for _, event in again]
    # The last call has a span, too
    assert last[1] == "queue-deleted"
    assert last[0] > THURSDAY + 3_700_000 + 3_900_000


def test_a_window_that_is_open_at_the_first_call_counts_and_none_begins_after_the_last() -> None:
    warm = Schedule({"42": Delays(UNBIND, STOP, ("thu,fri 00:00-24:00",))})

    happened = replay((THURSDAY + 3_600_000, "7"), warm=warm)

    assert story(event for event in happened if event.key == "42")[0] == (THURSDAY + 3_600_006, "queue-ready")
    assert [event.time_ms for event in happened if event.key == "42" and event.event == "unbound"] == [
        THURSDAY + 86_400_000
    ]


def test_a_group_that_is_stopped_before_its_worker_serves_reports_no_start() -> None:
    warm = Schedule({"42": Delays(UNBIND, STOP, ("thu 01:00-01:01",))})

    happened = replay((THURSDAY, "7"), (THURSDAY + 4_000_000, "7"), warm=warm, start=lambda: 10_000_000)

    assert [event.event for event in happened if event.key == "42"] == [
        "queue-ready",
        "group-started",
        "unbound",
        "group-stopped",
        "queue-deleted",
    ]


#: Times that leave an orphan time to be forwarded before the next call.
CALLS = st.lists(
    st.tuples(st.integers(0, 500).map(lambda number: number * 20), st.sampled_from("abc"), st.integers(0, 400)),
    max_size=25,
).map(sorted)
DELAYS = st.tuples(st.integers(20, 2000), st.integers(20, 2000))


@given(CALLS, DELAYS, st.integers(0, 3000), st.integers(0, 300))
def test_every_call_is_answered_once_in_order_by_a_group_that_is_there(
    calls: list[tuple[int, str, int]], delays: tuple[int, int], start: int, debounce: int
) -> None:
    happened = replay(
        *calls,
        delays=lambda key: Delays(*delays),
        start=lambda: start,
        debounce=debounce,
        statistics_interval=100,
        alive=70,
    )

    assert [event.time_ms for event in happened] == sorted(event.time_ms for event in happened)
    assert len({event.event_id for event in happened}) == len(happened)
    asked: dict[str, list[str]] = defaultdict(list)
    for number, (_, key, _) in enumerate(calls, 1):
        asked[key].append(str(number))
    for key, ids in asked.items():
        mine = [event for event in happened if event.key == key]
        for event in ("request-received", "finished"):
            assert [record.request_id for record in mine if record.event == event] == ids
        assert Counter(event.request_id for event in mine if event.event == "orphan-seen") == Counter(
            event.request_id for event in mine if event.event == "forwarded"
        )
        live_once_at_a_time(mine)


def live_once_at_a_time(happened: list[PastEvent]) -> None:
    """Check that groups, workers and queues of one key come and go in turn, and none that is gone sends an event."""
    group = queue = worker = in_hand = None
    for event in happened:
        if event.event == "group-started":
            assert group is None
            assert queue is not None
            group = event.event_id
        elif event.event == "group-stopped":
            assert group is not None
            assert in_hand is None
            group = worker = None
        elif event.event == "started":
            assert group is not None
            assert worker is None
            worker = event.worker_id
        elif event.event == "request-received":
            assert (event.worker_id, in_hand) == (worker, None)
            in_hand = event.request_id
        elif event.event == "finished":
            assert (event.worker_id, event.request_id) == (worker, in_hand)
            in_hand = None
        elif event.event == "queue-ready":
            queue = event.event_id
        elif event.event == "queue-deleted":
            assert group is None
            queue = None
    assert (group, queue) == (None, None)


@given(CALLS, st.integers(20, 2000), st.integers(0, 300))
@example([(0, "a", 387), (400, "a", 0)], 20, 0)
def test_a_call_is_cold_exactly_when_its_key_was_idle_for_longer_than_its_delay(
    calls: list[tuple[int, str, int]], unbind: int, debounce: int
) -> None:
    happened = replay(
        *calls, delays=lambda key: Delays(unbind, 500), debounce=debounce, statistics_interval=100, start=lambda: 1
    )

    done = {event.request_id: event.time_ms for event in happened if event.event == "finished"}
    cold = {event.request_id for event in happened if event.event == "orphan-seen"}
    last: dict[str, int] = {}
    binding = circumstances().binding
    for number, (at, key, _) in enumerate(calls, 1):
        idle = at - last.get(key, -(10**9))
        # What is still at work, and the burst that a last sign of life may end, decide what lies between. A key that
        # was unbound while its worker was at work is bound again a moment after the work is done.
        if binding <= idle < unbind:
            assert str(number) not in cold
        elif idle >= unbind + debounce:
            assert str(number) in cold
        last[key] = max(last.get(key, 0), done[str(number)])
