"""Deliberate mistakes, planted into the code of daemon or worker for the length of a run: the checker must see each.

Each is code that a person might write one day. A mistake that no seed notices means that the simulation is blind there.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

from osrdyne import leader, session
from osrdyne.broker import publisher
from osrdyne.errors import SessionEnded
from osrdyne.failures import dead_letter_rules, error_replies
from osrdyne.intake import (
    activity_feed,
    activity_listener,
    bursts,
    orphan_forwarder,
    orphan_rules,
    queue_watcher,
    taking_back,
    wake_rules,
)
from osrdyne.reconcile import group_loop, group_rules, queue_loop, queue_rules
from osrdyne.reconcile.queue_rules import QueueStep
from osrdyne.state import start_failures
from osrdyne.state.pool import PoolState
from osrdyne.state.signs import Signs
from osrdyne.state.tracker import Status
from osrdyne.state.values import Phase, QueueState, QueueTotals
from osrdyne_amqp import Channel, Properties
from osrdyne_amqp.errors import Nacked, Returned
from osrdyne_amqp.lanes import Lanes
from osrdyne_pool.broker import quorum
from osrdyne_protocol import events, headers, statuses
from osrdyne_worker import loop as worker_loop
from osrdyne_worker import suspects
from osrdyne_worker.suspects import Step

Patch = tuple[Any, str, Any]


def _acknowledge_before_confirm() -> list[Patch]:
    async def at_once(self: Any, confirm: asyncio.Future[Any]) -> Any:
        confirm.add_done_callback(lambda done: done.cancelled() or done.exception())
        return True

    return [(publisher.Publisher, "_confirmed", at_once)]


def _swallowing(error: type[Exception]) -> list[Patch]:
    publish = publisher.Publisher.publish

    async def swallow(self: Any, *arguments: Any, **options: Any) -> None:
        try:
            await publish(self, *arguments, **options)
        except error:
            return

    return [(publisher.Publisher, "publish", swallow)]


def _returned_counts_as_taken() -> list[Patch]:
    return _swallowing(Returned)


def _nacked_counts_as_taken() -> list[Patch]:
    return _swallowing(Nacked)


def _unacknowledged_do_not_count() -> list[Patch]:
    after_sample = queue_rules.after_sample

    def blind(queue: Any, totals: Any, **options: Any) -> Any:
        return after_sample(queue, replace(totals, unacknowledged=0), **options)

    return [(queue_rules, "after_sample", blind)]


def _samples_at_once() -> list[Patch]:
    plan = queue_rules.plan

    def hasty(*arguments: Any, **options: Any) -> Any:
        return plan(*arguments, **{**options, "interval": 0.0})

    return [(queue_rules, "plan", hasty)]


def _deleted_while_bound() -> list[Patch]:
    plan = queue_rules.plan

    def forgetful(wanted: Any, queue: Any, **options: Any) -> Any:
        result = plan(wanted, queue, **options)
        return queue_rules.QueuePlan(QueueStep.DELETE) if result.step is QueueStep.UNBIND and wanted is None else result

    async def delete(self: Any, key: str, queue: Any, channel: Any) -> Any:
        await channel.delete_queue(self._state.names.request_queue(key))
        return QueueState(Phase.GONE)

    def straight(wanted: Any, queue: Any, **options: Any) -> Any:
        unwanted = wanted is None or wanted.status is not Status.ACTIVE
        if unwanted and queue.phase is Phase.BOUND:
            return queue_rules.QueuePlan(QueueStep.DELETE)
        return forgetful(wanted, queue, **options)

    return [(queue_rules, "plan", straight), (queue_loop.QueueLoop, "_delete", delete)]


def _debounce_inverted() -> list[Patch]:
    observe = bursts.Bursts.observe

    def inverted(self: Any, key: str, now: float) -> float | None:
        return self._length if observe(self, key, now) is None else None

    return [(bursts.Bursts, "observe", inverted)]


def _one_orphan_after_the_other() -> list[Patch]:
    handle = orphan_forwarder.OrphanForwarder._handle

    async def in_turn(self: Any, message: Any) -> None:
        turn = self.__dict__.setdefault("_turn", asyncio.Lock())
        async with turn:
            await handle(self, message)

    return [(orphan_forwarder.OrphanForwarder, "_handle", in_turn)]


def _no_correlation_id() -> list[Patch]:
    made = Properties

    def without(**values: Any) -> Any:
        values.pop("correlation_id", None)
        return made(**values)

    return [(error_replies, "Properties", without)]


def _orphan_proves_nothing() -> list[Patch]:
    require = PoolState.require

    def trusting(self: Any, key: str, *, extra_lifetime: float = 0.0, found_unbound: bool = False) -> int:
        return require(self, key, extra_lifetime=extra_lifetime)

    return [(PoolState, "require", trusting)]


def _hops_not_counted() -> list[Patch]:
    decide = orphan_rules.decide

    def uncounted(*arguments: Any, **options: Any) -> Any:
        decision = decide(*arguments, **options)
        if isinstance(decision, orphan_rules.Forward):
            decision.properties.headers.pop(headers.X_HOPS, None)
        return decision

    return [(orphan_rules, "decide", uncounted)]


def _expired_forwarded() -> list[Patch]:
    decide = orphan_rules.decide

    def timeless(message: Any, **options: Any) -> Any:
        decision = decide(message, **options)
        if isinstance(decision, orphan_rules.ErrorAnswer) and decision.status == statuses.EXPIRED:
            early = {**options, "now_ms": options["now_ms"] - 10**9}
            decision = decide(message, **early)
            return replace(decision, deadline_ms=options["now_ms"] + 60_000)
        return decision

    return [(orphan_rules, "decide", timeless)]


def _no_copy_in_poison() -> list[Patch]:
    decide = dead_letter_rules.decide

    def careless(*arguments: Any, **options: Any) -> Any:
        verdict = decide(*arguments, **options)
        return replace(verdict, keep_as=None) if verdict.status is not None else verdict

    return [(dead_letter_rules, "decide", careless)]


def _dead_letter_settled_before_its_reply() -> list[Patch]:
    reply = error_replies.ErrorReplies.reply
    under_way: list[Any] = []

    async def later(self: Any, message: Any, **options: Any) -> bool:
        under_way.append(asyncio.ensure_future(reply(self, copy.copy(message), **options)))
        return True

    return [(error_replies.ErrorReplies, "reply", later)]


def _group_stopped_at_once() -> list[Patch]:
    plan = group_rules.plan

    def hasty(*, phase: Phase, **options: Any) -> Any:
        return plan(phase=Phase.DRAINED if phase is Phase.UNBOUND and not options["wanted"] else phase, **options)

    return [(group_rules, "plan", hasty)]


def _activity_wakes() -> list[Patch]:
    on_event = activity_listener.ActivityListener._on_event

    def wake(self: Any, key: str, given: Any) -> None:
        if given.get(headers.X_EVENT) in events.ACTIVITY:
            self._state.require(key)
        on_event(self, key, given)

    return [(activity_listener.ActivityListener, "_on_event", wake)]


def _keys_forgotten_at_restart() -> list[Patch]:
    async def forget(self: Any) -> None:
        self.state.queues.clear()

    return [(session.DaemonSession, "_adopt", forget)]


def _lock_not_waited_for() -> list[Patch]:
    async def at_once(connection: Any, names: Any) -> asyncio.Event:
        return asyncio.Event()

    return [(leader, "acquire", at_once)]


def _driver_error_ends_all() -> list[Patch]:
    async def unguarded(self: Any, key: str, action: Any) -> None:
        await action()

    return [(group_loop.GroupLoop, "_guarded", unguarded)]


def _group_not_wanted_without_queue() -> list[Patch]:
    plan = group_rules.plan

    def lazy(*, wanted: bool, **options: Any) -> Any:
        return group_rules.NOTHING if not wanted else plan(wanted=wanted, **options)

    return [(group_rules, "plan", lazy)]


def _all_on_one_channel() -> list[Patch]:
    def shared(self: Lanes, destination: object) -> Channel:
        return self.main

    return [(Lanes, "shared", shared)]


def _lost_without_evidence() -> list[Patch]:
    def believing(members: Sequence[quorum.Member]) -> bool:
        return bool(members)

    return [(quorum, "never_led", believing)]


def _lost_for_ever() -> list[Patch]:
    def blind(members: Sequence[quorum.Member]) -> bool:
        return False

    return [(quorum, "never_led", blind)]


def _counts_ignored() -> list[Patch]:
    return [(queue_watcher, "latest_use", lambda *_, **__: None)]


def _feed_ends_the_session() -> list[Patch]:
    async def once(self: Any) -> None:
        raise SessionEnded(await self._consume())

    return [(activity_feed.ActivityFeed, "run", once)]


def _unserved_left_alone() -> list[Patch]:
    return [(Signs, "unserved_reason", lambda *_, **__: None)]


def _held_for_ever() -> list[Patch]:
    return [(QueueTotals, "holds_the_same_as", lambda *_: False)]


def _unserved_at_once() -> list[Patch]:
    return [(group_rules, "consumer_grace", lambda *_, **__: 0.0)]


def _budget_never_spent() -> list[Patch]:
    return [(wake_rules.WakeBudget, "take", lambda *_: 0.0)]


def _never_refused() -> list[Patch]:
    return [(start_failures, "refused_until", lambda *_, **__: None)]


def _waiting_left_where_it_is() -> list[Patch]:
    async def nothing(self: Any, key: str, channel: Channel) -> int:
        return -1

    return [(taking_back.TakingBack, "take", nothing)]


def _started_counts_as_not() -> list[Patch]:
    after_end = group_rules.after_end

    def blind(attempt: Any, *, started: bool | None, **others: Any) -> Any:
        return after_end(attempt, started=False, **others)

    return [(group_rules, "after_end", blind), (group_rules, "after_started", lambda attempt, *, at: attempt)]


def _pause_after_a_death_at_work() -> list[Patch]:
    after_end = group_rules.after_end

    def blind(attempt: Any, *, held: int | None, **others: Any) -> Any:
        return after_end(attempt, held=None, **others)

    return [(group_rules, "after_end", blind)]


def _taken_back_and_left() -> list[Patch]:
    def both(self: Any, tag: int, *, multiple: bool = False) -> None:
        self.give_back(tag)

    take = taking_back.TakingBack.take

    async def careless(self: Any, key: str, channel: Channel) -> int:
        with mock.patch.object(type(channel), "ack", both):
            return await take(self, key, channel)

    return [(taking_back.TakingBack, "take", careless)]


def _own_looks_count() -> list[Patch]:
    return [(taking_back, "taken_by_workers", lambda count, **_: count)]


def _own_looks_go_back() -> list[Patch]:
    async def give_back(self: Any, message: Any, queue: str, delivered: Any, channel: Channel) -> bool:
        if not delivered(message):
            return await put_back(self, message, queue, delivered, channel)
        channel.give_back(message.delivery_tag)
        return True

    put_back = taking_back.TakingBack._put_back
    return [*_own_looks_count(), (taking_back.TakingBack, "_put_back", give_back)]


def _nothing_is_a_suspect() -> list[Patch]:
    return [(worker_loop, "failures", lambda message: 0)]


def _suspects_first() -> list[Patch]:
    plan = suspects.plan

    def planned(hand: Any, now: float) -> Step:
        return Step.STOP if hand.takes and hand.suspects and not hand.one_by_one else plan(hand, now)

    return [(suspects, "plan", planned)]


def _suspects_never() -> list[Patch]:
    return [(suspects, "QUIET_SECONDS", 10.0**9), (suspects, "latest", lambda *_: 10.0**9)]


def _suspects_together() -> list[Patch]:
    def keep(self: Any, session: Any) -> None:
        self._takes = False

    return [(suspects.Suspects, "_part", keep)]


def _first_suspect_first() -> list[Patch]:
    return [(suspects, "order", lambda counts: list(range(len(counts))))]


def _fewest_failures_first() -> list[Patch]:
    def by_count(counts: Sequence[int]) -> list[int]:
        return sorted(range(len(counts)), key=lambda place: (counts[place], place if counts[place] > 1 else -place))

    return [(suspects, "order", by_count)]


MISTAKES: dict[str, Callable[[], list[Patch]]] = {
    "a message is acknowledged before what follows is confirmed": _acknowledge_before_confirm,
    "a returned message counts as taken": _returned_counts_as_taken,
    "a refused message counts as taken": _nacked_counts_as_taken,
    "unacknowledged messages do not count": _unacknowledged_do_not_count,
    "samples are taken at once, before the broker's statistics can know": _samples_at_once,
    "a queue is deleted while it is bound": _deleted_while_bound,
    "the debounce lets through what it should hold back": _debounce_inverted,
    "orphans are handled one after the other": _one_orphan_after_the_other,
    "an error reply has no correlation id": _no_correlation_id,
    "an orphan does not prove that its key is unbound": _orphan_proves_nothing,
    "forwards are not counted": _hops_not_counted,
    "an expired request is forwarded": _expired_forwarded,
    "no copy is kept of a request that workers failed on": _no_copy_in_poison,
    "a message is settled before its reply is confirmed": _dead_letter_settled_before_its_reply,
    "a group is stopped while it holds requests": _group_stopped_at_once,
    "activity of an unknown key wakes it": _activity_wakes,
    "keys are forgotten at a restart": _keys_forgotten_at_restart,
    "the lock is not waited for": _lock_not_waited_for,
    "one group's failure ends the session": _driver_error_ends_all,
    "idle groups are never stopped": _group_not_wanted_without_queue,
    "a key whose events are lost counts as idle": _counts_ignored,
    "a session ends when no events arrive": _feed_ends_the_session,
    "a group that consumes nothing is left as it is": _unserved_left_alone,
    "a request that a worker has for ever is left with it": _held_for_ever,
    "a group is given no time to consume": _unserved_at_once,
    "the budget of new keys is never spent": _budget_never_spent,
    "requests wait for workers that never start": _never_refused,
    "what waits for workers that never start is left in its queue": _waiting_left_where_it_is,
    "a worker that had started counts as one that had not": _started_counts_as_not,
    "a request that is taken back is left in its queue, too": _taken_back_and_left,
    "a look of a session that ended counts as a worker's": _own_looks_count,
    "the daemon gives back what it takes for a worker's, until the limit": _own_looks_go_back,
    "a worker that died at work waits as if it could not start": _pause_after_a_death_at_work,
    # Seen in runs in which requests end workers of the worker library, and in no other.
    "a request that failed runs beside others": _nothing_is_a_suspect,
    "a request that failed runs before all others": _suspects_first,
    "a request that failed waits for ever": _suspects_never,
    "a request that failed is run while others that failed are in hand": _suspects_together,
    "requests that failed are run as the broker sends them": _first_suspect_first,
    "what failed least is run before what came back first": _fewest_failures_first,
    # Seen in runs in which the broker loses queues, and in no other.
    "what goes to one key's queue holds up what goes to all others": _all_on_one_channel,
    "a queue is taken for lost without evidence": _lost_without_evidence,
    "a queue that the broker lost is left as it is": _lost_for_ever,
}


@contextmanager
def planted(mistake: str) -> Iterator[None]:
    """Run with one mistake in the daemon or the worker library."""
    with ExitStack() as patches:
        for target, name, value in MISTAKES[mistake]():
            patches.enter_context(mock.patch.object(target, name, value))
        yield
