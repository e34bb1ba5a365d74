"""The account of jobs under faults, without engines: which jobs are lost, and which runs overlap."""

from __future__ import annotations

import pytest

from faults.jobs.account import Effect, Job, account, lost, overlapping

DONE = Job("done", 7)


def effect(token: int, began: float, ended: float, resource: str = "north", type: str = "ordered") -> Effect:  # noqa: A002
    return Effect(token, type, resource, began, ended)


def test_a_job_that_is_done_and_whose_run_had_an_effect_is_not_lost() -> None:
    assert lost({1: 0.5}, {1: DONE}, [effect(7, 1.0, 2.0)]) == []


@pytest.mark.parametrize(
    "jobs, effects",
    [
        ({}, [effect(7, 1.0, 2.0)]),
        ({1: DONE}, []),
        ({1: DONE}, [effect(8, 1.0, 2.0)]),
        ({1: Job("registered", None)}, []),
        ({1: Job("failed", 7)}, [effect(7, 1.0, 2.0)]),
        ({1: Job("cancelled", 7)}, [effect(7, 1.0, 2.0)]),
    ],
    ids=["deleted", "no effect", "the effect of another run", "never begun", "failed", "cancelled by nothing"],
)
def test_a_job_is_lost_without_an_end_or_without_an_effect(jobs: dict[int, Job], effects: list[Effect]) -> None:
    assert lost({1: 0.5}, jobs, effects) == [1]


def test_a_job_that_is_counted_with_a_run_that_began_before_it_is_lost() -> None:
    assert lost({1: 0.5, 2: 1.5}, {1: DONE, 2: DONE}, [effect(7, 1.0, 2.0)]) == [2]


def test_a_parked_job_waits_for_a_person_and_is_not_lost() -> None:
    assert lost({1: 0.5}, {1: Job("parked", 7)}, []) == []


def test_a_job_whose_client_was_killed_before_it_knew_of_it_counts_as_well() -> None:
    found = account({1: 0.5}, {1: DONE, 2: Job("registered", None)}, [effect(7, 1.0, 2.0)], runs=1, refused=0)
    assert (found.registered, found.done, found.lost) == (2, 1, (2,))


def test_runs_of_one_type_and_resource_overlap_where_one_begins_before_another_has_ended() -> None:
    assert overlapping([effect(2, 1.9, 3.0), effect(1, 1.0, 2.0), effect(3, 3.0, 4.0)]) == [(1, 2)]
    # also with a long one that is not the last before it
    assert overlapping([effect(1, 1.0, 9.0), effect(2, 2.0, 3.0), effect(3, 4.0, 5.0)]) == [(1, 2), (1, 3)]


def test_runs_of_different_types_or_resources_do_not_overlap() -> None:
    runs = [effect(1, 1.0, 2.0), effect(2, 1.0, 2.0, "south"), effect(3, 1.0, 2.0, type="together")]
    assert overlapping(runs) == []
