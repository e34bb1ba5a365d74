"""When the relay looks again, and takes the other side for gone."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from osrdyne_relay.time_rules import LookSchedule, PeerWatch


def test_looks_double_their_pause_until_something_happens() -> None:
    looks, dues = LookSchedule(1.0, 15.0, now=100.0), []
    for _ in range(6):
        dues.append(looks.due)
        looks.looked(looks.due)
    assert dues == [100.0, 101.0, 103.0, 107.0, 115.0, 130.0]

    looks.active()
    looks.looked(200.0)
    assert looks.due == 201.0

    looks.at_once()
    assert looks.due < 0


def test_a_peer_whose_counter_changes_is_never_gone() -> None:
    watch = PeerWatch(60.0, 15.0, now=0.0)

    assert not any(watch.note(b"%d" % number, now=number * 59.0) for number in range(100))


def test_a_peer_is_gone_after_so_many_seconds_of_looks_that_saw_the_same_counter() -> None:
    watch = PeerWatch(60.0, 15.0, now=0.0)
    watch.note(b"1", now=10.0)

    assert [watch.note(b"1", now=now) for now in (25.0, 40.0, 55.0, 69.9)] == [False] * 4
    assert watch.note(b"1", now=70.0)


def test_a_peer_that_never_beat_is_gone_in_the_same_time() -> None:
    watch = PeerWatch(60.0, 15.0, now=0.0)

    assert [watch.note(None, now=now) for now in (15.0, 30.0, 45.0, 60.0)] == [False, False, False, True]


def test_neither_an_outage_nor_a_sleep_of_this_process_counts_as_the_peers_silence() -> None:
    watch = PeerWatch(60.0, 15.0, now=0.0)
    watch.note(b"1", now=1.0)

    assert not watch.note(b"1", now=10_000.0)
    assert watch.silence == 15.0
    assert not watch.note(b"2", now=20_000.0)
    assert watch.silence == 0.0


@given(st.lists(st.tuples(st.floats(0, 100), st.booleans()), max_size=50))
def test_silence_is_never_more_than_the_time_since_the_last_beat(steps: list[tuple[float, bool]]) -> None:
    watch, now, beat, last = PeerWatch(1e9, 15.0, now=0.0), 0.0, 0, 0.0
    for step, beats in steps:
        now += step
        beat += beats
        last = now if beats else last
        watch.note(b"%d" % beat if beat else None, now)
        assert watch.silence <= now - last + 1e-6
