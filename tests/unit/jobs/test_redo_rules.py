"""When a redo process lets another one lead."""

from __future__ import annotations

from osrdyne_jobs.redo_rules import MOST_LEASES, Reach


def gives_up(reach: Reach, since: float) -> float:
    """The seconds of failing casts, one a second, until another process should lead."""
    now = since
    while not reach.note(casts=0, not_cast=1, now=now):
        now += 1
    return now - since


def test_another_process_leads_when_no_cast_got_through_for_longer_than_the_lease() -> None:
    assert gives_up(Reach(15.0), since=100.0) == 16.0


def test_one_cast_that_gets_through_is_enough_to_lead_on() -> None:
    reach = Reach(15.0)
    assert not reach.note(casts=0, not_cast=5, now=0.0)
    assert not reach.note(casts=1, not_cast=4, now=10.0)
    assert gives_up(reach, since=20.0) == 16.0


def test_scans_with_nothing_to_cast_change_nothing() -> None:
    reach = Reach(15.0)
    assert not any(reach.note(casts=0, not_cast=0, now=float(now)) for now in range(100))
    assert not reach.note(casts=0, not_cast=1, now=100.0)
    assert not reach.note(casts=0, not_cast=0, now=200.0)


def test_processes_that_lead_in_vain_take_turns_ever_less_often_until_a_cast_gets_through() -> None:
    reach = Reach(10.0)
    turns = [gives_up(reach, since=0.0) // 10 for _ in range(8)]
    assert turns == [1, 2, 4, 8, 16, MOST_LEASES, MOST_LEASES, MOST_LEASES]
    reach.note(casts=1, not_cast=0, now=0.0)
    assert gives_up(reach, since=0.0) == 11.0
