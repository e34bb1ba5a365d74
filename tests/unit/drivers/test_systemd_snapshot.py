"""What a unit's step from one moment to the next means, and what a listing means for a group."""

from __future__ import annotations

from dataclasses import replace

import pytest

from osrdyne.drivers.base import GroupState, How
from osrdyne.drivers.systemd.manager import ListedUnit
from osrdyne.drivers.systemd.snapshot import NEW, Snapshot, UnitEvent, event, group_state
from osrdyne.drivers.systemd.unit_watch import UnitWatch

RUNS = Snapshot("active", "running", invocation="one", began_at=5, exited_at=0)
WAITS = Snapshot(
    "activating", "auto-restart", invocation="one", result="exit-code", exit_code=1, exit_status=3, exited_at=9
)
FAILED = replace(WAITS, active="failed", sub="failed")
ENDED = replace(RUNS, active="inactive", sub="dead", exit_code=1, exited_at=9)


def error(before: Snapshot, after: Snapshot, *, asked: bool = False) -> str | None:
    found = event(before, after, asked=asked)
    assert found
    return found.error


def test_an_exit_without_a_request_is_reported_with_status_and_what_systemd_does() -> None:
    assert event(RUNS, WAITS, asked=False) == UnitEvent(
        "ended with status 3; systemd starts it again", 5, how=How.EXIT, code=3
    )
    assert event(RUNS, FAILED, asked=False) == UnitEvent(
        "ended with status 3; systemd has given it up", 5, gone=True, failed=True, how=How.EXIT, code=3
    )
    assert event(RUNS, ENDED, asked=False) == UnitEvent(
        "ended with status 0; systemd does not start it again", 5, gone=True, how=How.EXIT, code=0
    )


@pytest.mark.parametrize("sub", ["failed-before-auto-restart", "dead-before-auto-restart", "auto-restart-queued"])
def test_a_unit_on_its_way_to_a_restart_is_not_gone(sub: str) -> None:
    found = event(RUNS, replace(WAITS, active="failed", sub=sub), asked=False)
    assert found
    assert not found.gone


def test_a_restart_that_was_too_quick_to_be_seen_is_reported() -> None:
    assert error(RUNS, replace(RUNS, invocation="two")) == "ended; systemd starts it again"


def test_a_run_that_was_too_quick_to_be_seen_is_reported() -> None:
    assert error(NEW, FAILED) == "ended with status 3; systemd has given it up"


def test_what_is_not_known_is_not_reported() -> None:
    assert event(Snapshot("failed", "failed"), FAILED, asked=False) is None


@pytest.mark.parametrize("after", [RUNS, replace(RUNS, active="deactivating", sub="stop-sigterm")])
def test_nothing_is_reported_of_a_unit_that_goes_on(after: Snapshot) -> None:
    assert event(RUNS, after, asked=False) is None


@pytest.mark.parametrize("after", [ENDED, FAILED])
def test_an_end_that_was_asked_for_is_not_an_error(after: Snapshot) -> None:
    assert event(RUNS, after, asked=True) == UnitEvent(None, 5, gone=True, how=How.STOPPED)


@pytest.mark.parametrize(
    ("after", "how", "code"),
    [
        (FAILED, How.EXIT, 3),
        (replace(FAILED, result="signal", exit_code=2, exit_status=9), How.SIGNAL, 9),
        (replace(FAILED, result="core-dump", exit_code=3, exit_status=11), How.SIGNAL, 11),
        (replace(FAILED, result="oom-kill", exit_code=2, exit_status=9), How.MEMORY, None),
        (replace(FAILED, exit_status=203), How.NO_START, None),
        (replace(FAILED, result="start-limit-hit"), How.NO_START, None),
        (replace(FAILED, result="resources", exit_code=0, exit_status=0), How.NO_START, None),
        (replace(RUNS, invocation="two"), How.UNKNOWN, None),
    ],
)
def test_how_a_worker_ended_is_a_value(after: Snapshot, how: How, code: int | None) -> None:
    found = event(RUNS, after, asked=False)
    assert found
    assert (found.how, found.code) == (how, code)


def test_an_end_by_force_is_an_error_though_it_was_asked_for() -> None:
    assert "TimeoutStopSec=" in str(error(RUNS, replace(FAILED, result="timeout"), asked=True))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"result": "signal", "exit_code": 2, "exit_status": 9}, "was killed by SIGKILL"),
        ({"result": "core-dump", "exit_code": 3, "exit_status": 11}, "was killed by SIGSEGV and left a core dump"),
        ({"result": "signal", "exit_code": 2, "exit_status": 40}, "was killed by signal 40"),
        ({"result": "oom-kill", "exit_code": 2, "exit_status": 9}, "ran out of memory and was killed"),
        ({"exit_status": 217}, "ended with status 217: systemd finds no User= of that name"),
        ({"result": "resources", "exit_code": 0}, "could not be started"),
        ({"result": "something-new", "exit_code": 0}, "ended (something-new)"),
    ],
)
def test_how_a_worker_ended_is_described_in_words(changes: dict[str, object], said: str) -> None:
    assert said in str(error(RUNS, replace(FAILED, **changes)))  # type: ignore[arg-type]


def test_a_stop_by_others_is_reported() -> None:
    before = replace(RUNS, active="deactivating", sub="stop-sigterm")
    assert error(before, ENDED) == "was stopped, though not by this daemon; systemd does not start it again"


def test_a_unit_whose_condition_fails_is_reported() -> None:
    assert "Condition...=" in str(error(NEW, replace(NEW, checked_at=7, condition=False)))
    assert event(NEW, replace(NEW, checked_at=7), asked=False) is None


@pytest.mark.parametrize(
    ("unit", "state"),
    [
        (("active", "running", ""), (GroupState.RUNNING, 1)),
        (("active", "running", "stop"), (GroupState.STOPPING, 1)),
        (("reloading", "reload", ""), (GroupState.RUNNING, 1)),
        (("activating", "start", "start"), (GroupState.STARTING, 1)),
        (("activating", "auto-restart", ""), (GroupState.STARTING, 0)),
        (("failed", "failed-before-auto-restart", ""), (GroupState.STARTING, 0)),
        (("activating", "auto-restart", "stop"), (GroupState.STOPPING, 0)),
        (("inactive", "dead", "start"), (GroupState.STARTING, 0)),
        (("deactivating", "stop-sigterm", "start"), (GroupState.STOPPING, 1)),
        (("failed", "failed", ""), None),
        (("inactive", "dead", ""), None),
        (("inactive", "dead", "stop"), None),
    ],
)
def test_a_listed_unit_is_its_groups_state(unit: tuple[str, str, str], state: tuple[GroupState, int] | None) -> None:
    assert group_state(*unit) == state


# -- from one observation to the next


def unit_watch() -> tuple[UnitWatch, list[tuple[str, UnitEvent]]]:
    found: list[tuple[str, UnitEvent]] = []
    return UnitWatch(lambda name, unit: found.append((name, unit))), found


def properties(one: Snapshot) -> dict[str, object]:
    return {
        "ActiveState": one.active,
        "SubState": one.sub,
        "Job": (one.job, "/"),
        "InvocationID": bytes.fromhex(one.invocation.encode().hex()),
        "Result": one.result,
        "ExecMainCode": one.exit_code,
        "ExecMainStatus": one.exit_status,
        "ExecMainExitTimestampMonotonic": one.exited_at or 0,
    }


def test_a_moment_with_a_job_left_is_not_judged_until_it_is_settled() -> None:
    units, found = unit_watch()
    units.observe_signal("a", properties(replace(RUNS, active="deactivating", sub="stop-sigterm")))
    units.observe_signal("a", properties(replace(ENDED, job=7)))
    assert found == []
    units.observe_signal("a", properties(ENDED))
    assert "was stopped, though not by this daemon" in str(found[0][1].error)


def test_an_event_is_reported_once() -> None:
    units, found = unit_watch()
    for moment in (RUNS, FAILED, FAILED):
        units.observe_signal("a", properties(moment))
    assert len(found) == 1


def test_only_the_run_that_was_asked_to_end_may_end_in_silence() -> None:
    units, found = unit_watch()
    units.observe_signal("a", properties(RUNS))
    units.note_asked_to_stop("a")
    units.observe_signal("a", properties(replace(RUNS, invocation="two")))
    units.observe_signal("a", properties(replace(FAILED, invocation="two")))
    assert [unit.error is None for _, unit in found] == [True, False]


def test_what_a_former_daemon_asked_to_stop_is_not_an_error() -> None:
    units, found = unit_watch()
    assert units.observe_listed("a", ListedUnit("deactivating", "stop-sigterm", "stop"))
    units.observe_signal("a", properties(FAILED))
    assert [unit.error for _, unit in found] == [None]


def test_a_unit_that_systemd_forgot_without_a_signal_is_reported() -> None:
    units, found = unit_watch()
    units.observe_signal("a", properties(RUNS))
    assert units.missing_from({}) == ["a"]
    units.removed("a")
    assert found[0][1].gone
    assert units.missing_from({}) == []
