"""The state of one unit at one moment, and the meaning of the step from one moment to the next. Pure.

States and results are those of org.freedesktop.systemd1(5) and systemd.service(5).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from osrdyne.drivers.base import GroupState, How, signal_name

#: Sub-states in which a unit waits until systemd starts it again. It passes through the first two, and shows as failed
#: or inactive there (since systemd 254).
_WAITING = frozenset({"failed-before-auto-restart", "dead-before-auto-restart", "auto-restart", "auto-restart-queued"})

#: Sub-states that a unit reaches only when its stop was requested.
_STOPPING = frozenset({"stop", "stop-watchdog", "stop-sigterm", "stop-sigkill"})

#: How a main process ended: values of `ExecMainCode` (waitid(2), si_code).
_EXITED, _KILLED, _DUMPED = 1, 2, 3

#: Exit statuses that systemd itself sets when it cannot start the worker's program (systemd.exec(5)).
_STEPS = {
    200: "cannot enter its WorkingDirectory=",
    203: "cannot run the command of its ExecStart=",
    216: "finds no Group= of that name",
    217: "finds no User= of that name",
    226: "cannot set up its name spaces (PrivateTmp=, ProtectSystem= and the like)",
}

#: Results that are clearer than an exit status.
_RESULTS = {
    "oom-kill": "ran out of memory and was killed",
    "timeout": "did not start or end within the unit's timeout and was killed",
    "watchdog": "did not answer the unit's watchdog and was killed",
    "start-limit-hit": "ended too often",
    "resources": "could not be started: its environment file, or another resource, was missing",
    "exec-condition": "was not started, because of the unit's ExecCondition=",
    "protocol": "did not report ready as the unit's Type= demands",
}

#: Results after which there was no worker.
_NO_START = frozenset({"start-limit-hit", "resources", "exec-condition"})

#: Results of a job that leave a unit as it was, so that no other signal reports them (org.freedesktop.systemd1(5)).
JOB_FAILURES: Mapping[str, str] = {
    "dependency": "a unit that it requires failed",
    "timeout": "its job timed out",
    "assert": "an Assert...= of the unit does not hold",
    "invalid": "its unit cannot be started",
    "unsupported": "this machine does not support its type of unit",
}


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One unit. Values that a listing does not have keep their defaults."""

    active: str = "inactive"
    sub: str = "dead"
    #: Number of the job that waits or runs, 0 for none.
    job: int = 0
    #: systemd's id of the run; every start and restart has its own. Empty where not known.
    invocation: str = ""
    result: str = "success"
    exit_code: int = 0
    exit_status: int = 0
    #: When the main process last began, in microseconds since 1970; 0 where not known. Selects its output.
    began_at: int = 0
    #: When the main process last ended, in microseconds since boot; 0 for never, None where not known.
    exited_at: int | None = None
    #: When a condition of the unit was last checked, in microseconds since boot, and whether all held.
    checked_at: int = 0
    condition: bool = True

    def changed(self, properties: Mapping[str, Any]) -> Snapshot:
        """Return the snapshot after a `PropertiesChanged`."""
        values = {field: properties[name] for name, field in _PROPERTIES.items() if name in properties}
        if "Job" in properties:
            values["job"] = properties["Job"][0]
        if "InvocationID" in properties:
            values["invocation"] = bytes(properties["InvocationID"]).hex()
        return replace(self, **values)

    @property
    def waits(self) -> bool:
        """Between two runs: systemd starts it again by itself."""
        return self.sub in _WAITING

    @property
    def runs(self) -> bool:
        """A run is under way, its end included."""
        return self.active not in ("inactive", "failed", "maintenance") and not self.waits

    @property
    def gone(self) -> bool:
        """Nothing runs, and nothing will by itself."""
        return not self.runs and not self.waits and self.job == 0

    @property
    def settled(self) -> bool:
        """Not between two states: where a job is left of a unit that neither runs nor waits, more is to come."""
        return self.runs or self.waits or self.job == 0

    @property
    def stop_requested(self) -> bool:
        """Its stop, or a restart, was requested."""
        return self.active == "deactivating" and self.sub in _STOPPING


#: Property of systemd to field, where the value is taken as it is.
_PROPERTIES = {
    "ActiveState": "active",
    "SubState": "sub",
    "Result": "result",
    "ExecMainCode": "exit_code",
    "ExecMainStatus": "exit_status",
    "ExecMainStartTimestamp": "began_at",
    "ExecMainExitTimestampMonotonic": "exited_at",
    "ConditionTimestampMonotonic": "checked_at",
    "ConditionResult": "condition",
}


#: A unit that does not exist yet.
NEW = Snapshot(exited_at=0)


@dataclass(frozen=True, slots=True)
class UnitEvent:
    """Something that happened to a group's unit. `error` is what a person should know of it, if anything."""

    error: str | None = None
    #: When the run that ended began, as in `Snapshot`.
    began_at: int = 0
    #: The unit neither runs nor will by itself.
    gone: bool = False
    #: systemd shows it as failed, and a person may want to see that.
    failed: bool = False
    #: How its worker ended, with the exit status or the number of the signal.
    how: How = How.UNKNOWN
    code: int | None = None


def event(before: Snapshot, after: Snapshot, *, asked: bool) -> UnitEvent | None:
    """Return what the step between two settled moments means, None when it needs no report.

    `asked` says whether the driver had asked for the end of the run that `before` shows.
    """
    ended, gone = _ended(before, after), after.gone and not before.gone
    if asked:
        killed = after.gone and after.result == "timeout"
        error = "did not end within the unit's TimeoutStopSec= of being asked to and was killed" if killed else None
        return UnitEvent(error, before.began_at, after.gone, how=How.STOPPED) if ended or after.gone else None
    if after.gone and not ended and not after.condition and after.checked_at != before.checked_at:
        return UnitEvent("was not started: a Condition...= of the unit does not hold", gone=True, how=How.NO_START)
    if not ended and not gone:
        return None
    began_at = (before if before.runs else after).began_at
    failed = after.gone and after.active == "failed"
    return UnitEvent(f"{_how(before, after)}; {_next(after)}", began_at, after.gone, failed, *_end(before, after))


def _ended(before: Snapshot, after: Snapshot) -> bool:
    if before.runs:
        return not after.runs or (bool(before.invocation) and after.invocation != before.invocation)
    # It began and ended between two looks.
    return not after.runs and before.exited_at is not None and after.exited_at not in (0, before.exited_at)


def _how(before: Snapshot, after: Snapshot) -> str:
    if before.stop_requested and (after.runs or after.result == "success"):
        return "was stopped, though not by this daemon"
    if after.runs:
        return "ended"  # how is known no more: the next run has begun
    if after.result in _RESULTS:
        return _RESULTS[after.result]
    if after.exit_code == _EXITED:
        step = _STEPS.get(after.exit_status)
        return f"ended with status {after.exit_status}" + (f": systemd {step}" if step else "")
    if after.exit_code in (_KILLED, _DUMPED):
        core = " and left a core dump" if after.exit_code == _DUMPED else ""
        return f"was killed by {signal_name(after.exit_status)}{core}"
    return f"ended ({after.result})"


def _end(before: Snapshot, after: Snapshot) -> tuple[How, int | None]:
    """Return how a worker ended, as values; as `_how`."""
    if before.stop_requested and (after.runs or after.result == "success"):
        return How.STOPPED, None
    if after.runs:
        return How.UNKNOWN, None
    if after.result == "oom-kill":
        return How.MEMORY, None
    if after.result in _NO_START or (after.exit_code == _EXITED and after.exit_status in _STEPS):
        return How.NO_START, None
    if after.exit_code == _EXITED:
        return How.EXIT, after.exit_status
    return (How.SIGNAL, after.exit_status) if after.exit_code in (_KILLED, _DUMPED) else (How.UNKNOWN, None)


def _next(after: Snapshot) -> str:
    if not after.gone:
        return "systemd starts it again"
    return "systemd has given it up" if after.active == "failed" else "systemd does not start it again"


def group_state(active: str, sub: str, job: str) -> tuple[GroupState, int] | None:
    """Return what a listed unit means for its group, and how many workers it has now; None when it has no group.

    `job` is the type of the job that waits or runs, empty for none.
    """
    seen = Snapshot(active, sub)
    if seen.runs:
        if active == "deactivating" or job == "stop":
            return GroupState.STOPPING, 1
        return (GroupState.STARTING if active == "activating" else GroupState.RUNNING), 1
    if seen.waits and job == "stop":
        return GroupState.STOPPING, 0
    return (GroupState.STARTING, 0) if seen.waits or job in ("start", "restart") else None
