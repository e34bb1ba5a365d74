"""What to do next about one request queue: a pure decision from target and what is known of the queue.

Deleting a quorum queue with a message in it loses the message silently, and the broker cannot delete "only if
empty" (docs/reference/rabbitmq-facts.md#deleting-a-queue). Its management API shows unacknowledged messages seconds
late (docs/reference/rabbitmq-facts.md#counts-that-come-late). So a queue that no key wants passes a sequence, and
anything found on the way makes its key Active again:
unbind; nothing ready; nothing unacknowledged; stop the group; no consumer and nothing ready; two samples of
totals one statistics interval apart, the first one interval after that look; one last look; delete.

A queue that the broker itself has lost holds nothing, and works again only after it is deleted and created again;
`osrdyne_pool.broker.lost` says what proves the loss.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import Enum

from osrdyne.state.tracker import KeyTarget, Status
from osrdyne.state.values import Phase, QueueState, QueueTotals
from osrdyne_runtime.retry import back_off


class QueueStep(Enum):
    """The next thing to do about a queue."""

    ASSERT = "declare and bind"
    UNBIND = "unbind"
    LOOK = "look at ready messages and consumers"
    SAMPLE = "sample totals"
    DELETE = "look once more and delete"
    DISCARD = "delete what the broker has lost"
    REFUSE = "unbind, and take back what waits for workers that cannot be started"


@dataclass(frozen=True, slots=True)
class QueuePlan:
    """A step to take now, or when to decide again (`at`, monotonic seconds); both None: nothing is due."""

    step: QueueStep | None = None
    at: float | None = None


NOTHING = QueuePlan()


def plan(
    wanted: KeyTarget | None,
    queue: QueueState,
    *,
    group_gone: bool,
    interval: float,
    now: float,
    lost: bool = False,
    refused_until: float | None = None,
) -> QueuePlan:
    """Decide the next step for one queue.

    `group_gone` says that the driver shows no group of this key. `interval` is the broker's statistics
    interval in seconds: how late a sample may be. `lost` says that the broker is proved to have lost the queue.
    `refused_until` says that requests are refused, and until when, which may be infinity; None: they are not.
    """
    if lost and queue.phase not in (Phase.GONE, Phase.FOREIGN):
        return _when(QueueStep.DISCARD, queue.not_before, now)
    if wanted is not None and refused_until is not None and queue.phase in (Phase.BOUND, Phase.UNBOUND):
        return _plan_refusal(queue, refused_until, now)
    if wanted is not None and wanted.status is Status.ACTIVE:
        # Before a queue is asserted, it may be a foreign one: nothing may be taken from it.
        up_to_date = queue.phase is Phase.BOUND and queue.asserted >= wanted.generation
        return NOTHING if up_to_date else _when(QueueStep.ASSERT, queue.not_before, now)
    if queue.phase in (Phase.GONE, Phase.FOREIGN):
        return NOTHING
    due = max(queue.not_before, queue.recheck_at)
    if now < due:
        return QueuePlan(at=due)
    if queue.phase in (Phase.UNKNOWN, Phase.BOUND):
        return QueuePlan(QueueStep.UNBIND)
    if wanted is not None:
        return NOTHING
    if queue.looked_at is None:
        return QueuePlan(QueueStep.LOOK) if queue.phase is Phase.UNBOUND or group_gone else NOTHING
    if queue.sampled_at is None:
        return _when(QueueStep.SAMPLE, queue.looked_at + interval, now)
    # DRAINED with one quiet sample: the second sample is taken within DELETE, right before the last look.
    return _when(QueueStep.DELETE, queue.sampled_at + interval, now)


def _plan_refusal(queue: QueueState, until: float, now: float) -> QueuePlan:
    if not queue.emptied:
        return _when(QueueStep.REFUSE, queue.not_before, now)
    return NOTHING if until == math.inf else QueuePlan(at=until)


def _when(step: QueueStep, due: float, now: float) -> QueuePlan:
    return QueuePlan(step) if now >= due else QueuePlan(at=due)


@dataclass(frozen=True, slots=True)
class MessagesFound:
    """An unwanted queue holds messages: its key must be Active again. `queue` is what is known of the queue then."""

    queue: QueueState


#: What a look at an unwanted queue, or a sample of it, shows.
Finding = QueueState | MessagesFound


def _messages_found(queue: QueueState) -> MessagesFound:
    return MessagesFound(replace(queue, phase=Phase.UNKNOWN, looked_at=None, sampled_at=None))


def after_look(queue: QueueState, *, ready: int, consumers: int, recheck: float, now: float) -> Finding:
    """Return what a passive declare shows.

    Foreign consumers of a drained queue (workers that a person runs by hand) keep the queue: it is
    looked at again after `recheck` seconds.
    """
    if ready > 0:
        return _messages_found(queue)
    if queue.phase is Phase.DRAINED and consumers > 0:
        return replace(queue, looked_at=None, sampled_at=None, recheck_at=now + recheck)
    return replace(queue, looked_at=now, sampled_at=None)


def after_sample(queue: QueueState, totals: QueueTotals, *, recheck: float, now: float) -> Finding:
    """Return what a sample shows of an unbound or drained queue.

    Some queues are kept, whatever else the sample shows, and looked at again after `recheck` seconds. A queue that
    another program bound begins again with the unbind. One whose dead letters have not arrived only has to stay: they
    need no worker, and the broker tries again every few minutes.

    After the first quiet sample of an unbound queue its group may be stopped, and then all evidence is
    collected again. A quiet sample of a drained queue is evidence.
    """
    if totals.bindings == 0 and (totals.ready > 0 or totals.unacknowledged > 0):
        return _messages_found(queue)
    phase = Phase.UNKNOWN if totals.bindings > 0 else Phase.DRAINED
    without_evidence = replace(queue, phase=phase, looked_at=None, sampled_at=None)
    kept_because = _kept_because(totals)
    if kept_because is not None:
        return replace(without_evidence, recheck_at=now + recheck, error=kept_because)
    return without_evidence if queue.phase is Phase.UNBOUND else replace(queue, sampled_at=now)


def _kept_because(totals: QueueTotals) -> str | None:
    if totals.dead_lettering > 0:
        return "its dead letters have not arrived yet; it is kept until they have"
    return "another program bound this queue; it is kept while it is bound" if totals.bindings > 0 else None


def is_quiet_look(found: Finding) -> bool:
    """Return whether a look at a drained queue is evidence: nothing ready, and no consumer."""
    return isinstance(found, QueueState) and found.phase is Phase.DRAINED and found.looked_at is not None


def is_quiet_sample(found: Finding) -> bool:
    """Return whether a sample of a drained queue is evidence: no message, and no foreign binding."""
    return isinstance(found, QueueState) and found.phase is Phase.DRAINED and found.sampled_at is not None


def after_failure(queue: QueueState, step: QueueStep, error: str, *, now: float) -> QueueState:
    """Return what is known after a failed action: what it changed is unknown, and the next waits longer."""
    failures = queue.failures + 1
    # A step that only looks changes nothing: evidence is collected again, but the queue stays unbound.
    kept = step in (QueueStep.LOOK, QueueStep.SAMPLE) or queue.phase is Phase.DRAINED
    # Where this is not true, the next try unbinds it. Bound again, it would be taken for one that has never failed.
    refused = step is QueueStep.REFUSE
    return QueueState(
        phase=Phase.UNBOUND if refused else queue.phase if kept else Phase.UNKNOWN,
        asserted=-1,
        failures=failures,
        not_before=now + back_off(failures),
        error=error,
    )


def foreign(queue: QueueState, name: str, said: str, *, now: float) -> QueueState:
    """Return what is known once a queue with our name turned out to be foreign.

    While its key is wanted, the daemon tries to declare its own queue, later each time: the other may be gone by then.
    """
    failures = queue.failures + 1
    return QueueState(
        Phase.FOREIGN,
        failures=failures,
        not_before=now + back_off(failures),
        error=f"queue {name} is not osrdyne's: its type or arguments differ; empty and delete it, and the daemon "
        f"creates its own ({said})",
    )
