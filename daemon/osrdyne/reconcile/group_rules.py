"""What to do next about one worker group: a pure decision from target, queue, engine and past attempts.

The autoscaler decides how many workers a group has; these rules decide only whether the group exists. Rules:
a wanted key with a queue has a group; a group is stopped only when its queue is drained or gone; a failing
start waits longer each time, and a start after a death at work does not; a stuck group is stopped, and started
again once gone; a group with an old template likewise, when it has its turn.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from osrdyne.drivers.base import Group, GroupState
from osrdyne.state.values import Attempt, Phase
from osrdyne_runtime.retry import back_off

#: A group that ran for this many seconds before it failed did not fail at its start.
HEALTHY_AFTER_SECONDS = 10.0


class GroupAction(Enum):
    """What to do about a group."""

    START = "start"
    STOP = "stop"
    #: Stop it when it has its turn: it has an old template. It is started once it is gone.
    EXCHANGE = "exchange"


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """An action to take now and why, or when to decide again (`at`, monotonic seconds); both None: nothing is due."""

    action: GroupAction | None = None
    reason: str = ""
    at: float | None = None
    #: A stop of what does not work: it counts as a failure, and the next start waits for its back-off.
    failed: bool = False


NOTHING = GroupPlan()


def plan(
    *,
    wanted: bool,
    phase: Phase,
    group: Group | None,
    attempt: Attempt,
    template: str,
    stuck: str | None,
    now: float,
) -> GroupPlan:
    """Decide about one group. `stuck` says why a running group must be restarted, None when it need not be."""
    if not wanted:
        may_stop = phase in (Phase.DRAINED, Phase.FOREIGN, Phase.GONE)
        if group is None or group.state is GroupState.STOPPING or not may_stop:
            return NOTHING
        return _after_back_off(GroupAction.STOP, "idle", attempt, now)
    if group is None:
        has_queue = phase in (Phase.BOUND, Phase.UNBOUND)
        return _after_back_off(GroupAction.START, "wanted", attempt, now) if has_queue else NOTHING
    if group.state is GroupState.STOPPING:
        return NOTHING
    if stuck is not None:
        return _after_back_off(GroupAction.STOP, stuck, attempt, now, failed=True)
    if group.template != template:
        return _after_back_off(GroupAction.EXCHANGE, "template changed", attempt, now)
    return NOTHING


def _after_back_off(
    action: GroupAction, reason: str, attempt: Attempt, now: float, *, failed: bool = False
) -> GroupPlan:
    due = now >= attempt.not_before
    return GroupPlan(action, reason, failed=failed) if due else GroupPlan(at=attempt.not_before)


def after_start(attempt: Attempt, *, now: float) -> Attempt:
    """Return what is remembered once the engine accepted a start."""
    return replace(attempt, started_at=now, alive=False)


def after_failure(attempt: Attempt, error: str, *, now: float) -> Attempt:
    """Return what is remembered after a refused start, a failed stop, a worker's exit or a stop of what hangs."""
    ran_well = attempt.alive and attempt.started_at is not None and now - attempt.started_at >= HEALTHY_AFTER_SECONDS
    failures = 1 if ran_well else attempt.failures + 1
    return Attempt(
        failures=failures,
        not_before=now + back_off(failures),
        error=error,
        failed_at=now,
        unstarted=attempt.unstarted,
    )


def after_end(attempt: Attempt, *, started: bool | None, held: int | None, now: float) -> Attempt:
    """Return what is remembered once it is known whether a worker that failed had said `started`; None: it is not.

    `held` is how many requests it had in hand. One that died at work may be started again at once: each such start
    costs a request a delivery, so that the delivery limit ends it.
    """
    if started is None:
        return attempt
    if not started:
        return replace(attempt, unstarted=attempt.unstarted + 1)
    return replace(_worked(attempt), failures=0, not_before=now) if held else _worked(attempt)


def after_end_of_stop(attempt: Attempt, plan: GroupPlan, trace: str) -> Attempt:
    """Return what is remembered once a worker has ended that was stopped by `plan`, because it did not work.

    `trace` says where its output is, and the last line of it.
    """
    return replace(attempt, error=f"{plan.reason}{trace}") if attempt.error == plan.reason else attempt


def after_started(attempt: Attempt, *, at: float | None) -> Attempt:
    """Return what is remembered once a worker has said that it consumes, last at `at`: a start has worked.

    A request that workers took, found at `at`, says the same.
    """
    works = at is not None and attempt.failed_at is not None and at > attempt.failed_at
    return _worked(attempt) if works else attempt


def after_served(attempt: Attempt, *, at: float) -> Attempt:
    """Return what is remembered once counts as of `at` have shown a consumer: after a start, that start has worked."""
    works = attempt.started_at is not None and at > attempt.started_at
    return _worked(attempt) if works else attempt


def in_a_new_session(attempt: Attempt) -> Attempt:
    """Return what is remembered when a session begins: the pause stays, but no row of starts that ended too early."""
    return _worked(attempt)


def _worked(attempt: Attempt) -> Attempt:
    return replace(attempt, unstarted=0)


def after_sign_of_life(attempt: Attempt, group: Group | None, *, at: float, now: float) -> Attempt:
    """Return what is remembered once a worker reported, last at `at`. One that lived long clears earlier failures.

    A worker that reports after a failure, without a start by the daemon, was restarted by its engine.
    """
    if attempt.started_at is None and attempt.failed_at is not None and group is not None and at > attempt.failed_at:
        attempt = replace(attempt, started_at=at)
    if attempt.started_at is None or at < attempt.started_at:
        return attempt
    runs = group is not None and group.state is GroupState.RUNNING
    if runs and now - attempt.started_at >= HEALTHY_AFTER_SECONDS:
        return replace(attempt, alive=True, failures=0, error=None, failed_at=None, unstarted=0)
    return replace(attempt, alive=True)


def makes_up_at(attempt: Attempt) -> float | None:
    """Return when a living worker clears past failures (monotonic seconds); None without a worker or failures."""
    if not attempt.alive or attempt.failed_at is None or attempt.started_at is None:
        return None
    return attempt.started_at + HEALTHY_AFTER_SECONDS


def holds_start_slot(attempt: Attempt, group: Group | None, *, hold: float, now: float) -> bool:
    """Return whether a key still counts as a start in flight: accepted, not yet alive, at most `hold` seconds."""
    return (
        attempt.started_at is not None
        and not attempt.alive
        and group is not None
        and group.state is not GroupState.STOPPING
        and now < attempt.started_at + hold
    )


def holds_exchange_slot(
    attempt: Attempt, group: Group | None, *, began: float, template: str, hold: float, now: float
) -> bool:
    """Return whether the exchange of a group, which began at `began`, still has its turn: at most `hold` seconds.

    It has, until a worker of the new template shows life. A start that fails keeps the turn: a template with which no
    worker starts must not reach all groups at once.
    """
    is_new = group is not None and group.template == template and group.state is not GroupState.STOPPING
    return now < began + hold and not (is_new and attempt.alive)


def consumer_grace(attempt: Attempt, *, start_grace: float, patience: float) -> float:
    """Return how many seconds a running group may consume nothing before it is restarted.

    It doubles with each failure, up to `patience`: a group that needs long to load is given that time in the end.
    """
    return min(start_grace * 2.0 ** min(attempt.failures, 16), patience)


def stuck_reason(
    *,
    ready_since: float | None,
    held_since: float | None,
    last_taken: float | None,
    started_at: float | None,
    patience: float,
    counted_at: float,
    late: float,
) -> str | None:
    """Return why a running group counts as stuck, None when it does not. `counted_at`: when the queue was last counted.

    Only the time up to then counts. What the group took later is not known, for example after the daemon stood still.

    A group is stuck when for `patience` seconds (consumer timeout plus start grace) its queue has had ready messages of
    which the group took none: RabbitMQ 4.3 cancels the consumer of a hung worker, which then gets nothing more. It is
    stuck, too, when for so long its workers have had the same messages and no other: some that are held for too long,
    RabbitMQ 4.3 overlooks (docs/reference/rabbitmq-facts.md#a-consumer-that-holds-a-message-for-too-long).
    Counts may be `late` by so many seconds.
    """
    since = max(last_taken or 0.0, started_at or 0.0)
    if ready_since is not None and (waited := counted_at - max(ready_since, since)) >= patience:
        return f"stuck: requests are ready, and none was taken for {waited:.0f} s"
    if held_since is not None and (held := counted_at - late - max(held_since, since)) >= patience:
        return f"stuck: its workers have answered no request for {held:.0f} s, longer than pool.consumer_timeout"
    return None
