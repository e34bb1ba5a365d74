"""The demo of jobs counts what is lost, overlaps or is wrong, kills as planned, and checks figures independently."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from pathlib import Path
from random import Random

import pytest

from examples.airports import cache, day_figures, flights, jobs_account, jobs_kills, jobs_results, prepare, whole_days
from examples.airports.jobs_account import Account, Effect, account, overlapping
from examples.airports.jobs_demo import tasks_of
from osrdyne_jobs.database.engines import engine_for

LAX, BOS = ("LAX", date(2013, 1, 1)), ("BOS", date(2013, 1, 2))
FIGURES = {LAX: (2, 1, 5.0), BOS: (3, 0, None)}
EFFECTS = [Effect("LAX", 1, 0.0, 1.0), Effect("BOS", 2, 0.5, 2.0)]
DONE = {1: "done", 2: "done"}


def accounted(
    submitted: dict[int, jobs_account.Task] | None = None,
    states: dict[int, str] | None = None,
    results: dict[jobs_account.Task, tuple[int, int, float | None]] | None = None,
) -> Account:
    submitted = {1: LAX, 2: BOS} if submitted is None else submitted
    states, results = DONE if states is None else states, FIGURES if results is None else results
    return account(submitted, states, 3, results, EFFECTS, FIGURES)


# --- overlapping ------------------------------------------------------------------------------------------------


def test_runs_of_one_airport_that_follow_each_other_do_not_overlap() -> None:
    assert overlapping([Effect("LAX", 1, 0.0, 1.0), Effect("LAX", 2, 1.0, 2.0), Effect("LAX", 3, 2.5, 3.0)]) == 0


def test_runs_of_two_airports_do_not_overlap() -> None:
    assert overlapping([Effect("LAX", 1, 0.0, 1.0), Effect("BOS", 2, 0.5, 1.5)]) == 0


def test_a_run_that_begins_before_the_previous_run_ends_overlaps_whatever_their_order() -> None:
    pair = [Effect("LAX", 1, 0.0, 1.0), Effect("LAX", 2, 0.9, 2.0)]
    assert overlapping(pair) == overlapping(pair[::-1]) == 1


def test_a_long_run_overlaps_with_each_run_within_it_and_every_pair_counts() -> None:
    long = Effect("LAX", 1, 0.0, 10.0)
    assert overlapping([long, Effect("LAX", 2, 1.0, 2.0), Effect("LAX", 3, 3.0, 4.0)]) == 2
    assert overlapping([long, Effect("LAX", 2, 1.0, 5.0), Effect("LAX", 3, 3.0, 4.0)]) == 3


# --- the account ------------------------------------------------------------------------------------------------


def test_jobs_that_are_done_with_their_figures_make_a_good_account_and_its_line() -> None:
    found = accounted()
    assert found.good
    assert found.last_line == "jobs: registered=2 done=2 runs=3 parked=0 lost=0 overlapping=0"


@pytest.mark.parametrize("state", ["registered", "running", "failed", "cancelled"])
def test_a_job_that_is_not_done_is_lost(state: str) -> None:
    found = accounted(states={1: "done", 2: state}, results={LAX: FIGURES[LAX]})
    assert (found.lost, found.done, found.good) == (1, 1, False)


def test_a_job_that_the_database_does_not_know_is_lost_and_counts_as_registered() -> None:
    found = accounted(states={1: "done"})
    assert (found.registered, found.lost) == (2, 1)


def test_a_job_that_is_done_without_a_result_is_lost() -> None:
    assert accounted(results={LAX: FIGURES[LAX]}).lost == 1


def test_a_job_whose_submit_failed_after_its_commit_counts_and_needs_an_end() -> None:
    found = accounted(states={**DONE, 3: "registered"})
    assert (found.registered, found.lost) == (3, 1)


def test_a_parked_job_is_not_lost() -> None:
    found = accounted(states={1: "done", 2: "parked"}, results={LAX: FIGURES[LAX]})
    assert (found.parked, found.lost, found.good) == (1, 0, True)


def test_figures_that_differ_and_results_of_no_job_are_wrong() -> None:
    other = ("MIA", date(2013, 1, 3))
    assert accounted(results={**FIGURES, BOS: (3, 1, None)}).wrong == 1
    assert accounted(results={**FIGURES, other: (0, 0, None)}).wrong == 1
    assert not accounted(results={**FIGURES, other: (0, 0, None)}).good


def test_a_day_without_flights_has_no_figures_in_the_whole_table_and_is_right_with_none() -> None:
    quiet = ("EYW", date(2013, 1, 1))
    assert accounted({3: quiet}, {3: "done"}, {quiet: (0, 0, None)}).good
    assert accounted({3: quiet}, {3: "done"}, {quiet: (1, 0, 0.0)}).wrong == 1


def test_overlapping_runs_make_a_bad_account() -> None:
    assert not replace(accounted(), overlapping=1).good


# --- kills and tasks --------------------------------------------------------------------------------------------


def test_as_many_processes_of_each_kind_are_killed_as_asked_before_the_last_jobs_are_done() -> None:
    kills = jobs_kills.plan(1000, {"worker": 20, "broker": 3, "redo": 0}, Random(1))
    assert [kill.what for kill in kills].count("worker") == 20
    assert [kill.what for kill in kills].count("broker") == 3
    assert len(kills) == 23
    assert kills == sorted(kills)
    assert all(0 <= kill.after <= 900 for kill in kills)


def test_kills_of_one_kind_are_spread_over_the_jobs() -> None:
    after = [kill.after for kill in jobs_kills.plan(1000, {"broker": 3}, Random(2))]
    assert after[0] < 300 <= after[1] < 600 <= after[2]


def test_every_chosen_airport_has_each_day_once() -> None:
    tasks = tasks_of(["BOS", "LAX", "MIA"], 2, 3, Random(1))
    assert len(tasks) == len(set(tasks)) == 6
    assert len({airport for airport, _ in tasks}) == 2
    assert {day.day for _, day in tasks} == {1, 2, 3}


# --- figures ----------------------------------------------------------------------------------------------------


def airport(*scheduled_and_delay: tuple[int, int | None]) -> flights.Airport:
    made = [flights.Flight(at, "JFK", "AA", 1, delay, None) for at, delay in scheduled_and_delay]
    return flights.Airport("LAX", None, made, {})


def test_figures_are_those_of_the_flights_scheduled_on_the_day_itself() -> None:
    day = day_figures.MINUTES_A_DAY
    known = airport((day - 1, 50), (day, 10), (2 * day - 1, 5), (2 * day, 70), (day + 5, None))
    assert day_figures.of_day(known, date(2013, 1, 2)) == (3, 1, 7.5)


def test_without_a_flight_that_left_there_is_no_mean_delay() -> None:
    assert day_figures.of_day(airport((5, None)), date(2013, 1, 1)) == (1, 1, None)
    assert day_figures.of_day(airport(), date(2013, 1, 1)) == (0, 0, None)


@pytest.mark.full
def test_the_figures_of_the_workers_are_those_of_pandas(tmp_path: Path) -> None:
    source = cache.source()
    prepare.write(source, str(tmp_path / "prepared"))
    expected = whole_days.figures(Path(source), 1)
    assert len({airport for airport, _ in expected}) == 94
    for code in ("EYW", "LAX", "BUR"):
        known = flights.load(code, str(tmp_path / "prepared"))
        for number in range(1, 32):
            day = date(2013, 1, number)
            assert day_figures.of_day(known, day) == expected.get((code, day), (0, 0, None))


def test_a_result_replaces_that_of_an_earlier_run_and_each_run_is_noted(tmp_path: Path) -> None:
    engine = engine_for(f"sqlite:///{tmp_path / 'results.sqlite'}")
    jobs_results.make(engine)
    with engine.begin() as connection:
        for token, figures in enumerate(((1, 0, 4.5), (2, 2, None)), start=1):
            jobs_results.write(connection, *LAX, token, day_figures.Figures(*figures))
            jobs_results.note(connection, Effect("LAX", token, 1.0 * token, 1.5 * token))
        assert jobs_results.results(connection) == {LAX: (2, 2, None)}
        assert jobs_results.effects(connection) == [Effect("LAX", 1, 1.0, 1.5), Effect("LAX", 2, 2.0, 3.0)]
    engine.dispose()
