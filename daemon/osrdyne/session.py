"""One session: everything that the acting daemon does while one connection holds the lock.

Starts all tasks and ends them together: the first that ends ends all. Values that must outlive the connection
(target, driver, attempts) are passed in.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any

from osrdyne.broker.channel_pool import ChannelPool
from osrdyne.broker.lifecycle_events import LifecycleEvents
from osrdyne.broker.management_api import ManagementApi
from osrdyne.broker.memory_limit import MemoryLimit
from osrdyne.broker.publisher import Publisher
from osrdyne.broker.queue_feed import QueueFeed, end_with
from osrdyne.broker.static_queues import StaticQueues
from osrdyne.broker.topology_watcher import watch_topology
from osrdyne.drivers.base import Driver
from osrdyne.errors import SessionEnded
from osrdyne.failures.dead_letter_responder import DeadLetterResponder
from osrdyne.failures.error_replies import ErrorReplies
from osrdyne.intake.activity_feed import ActivityFeed
from osrdyne.intake.activity_listener import ActivityListener
from osrdyne.intake.hold_limits import HeldMessages
from osrdyne.intake.orphan_forwarder import OrphanForwarder
from osrdyne.intake.queue_watcher import QueueWatcher
from osrdyne.intake.taking_back import TakingBack
from osrdyne.intake.wake_rules import WakeBudget
from osrdyne.lifetime.clock import pass_time
from osrdyne.lifetime.warmer import keep_warm
from osrdyne.lifetime.window_rules import Schedule
from osrdyne.metrics import Metrics
from osrdyne.reconcile.group_loop import GroupLoop
from osrdyne.reconcile.queue_loop import QueueLoop, adopt
from osrdyne.settings.daemon import DaemonSettings
from osrdyne.state.pool import PoolState
from osrdyne_amqp import Channel, Connection
from osrdyne_pool.drift import drift
from osrdyne_pool.topology import milliseconds, needed_to_act, topology
from osrdyne_protocol.events import wall_ms

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DaemonSession:
    """One session's parts, and the method that runs it."""

    settings: DaemonSettings
    state: PoolState
    driver: Driver
    metrics: Metrics
    management: ManagementApi
    #: The daemon's own events, on a connection of their own, as nothing that happens to events may end the session.
    lifecycle: LifecycleEvents
    #: Opens further connections, each for what it is named after: what is consumed may end a connection.
    connect: Callable[[str], Awaitable[Connection]]

    async def run(self, connection: Connection, lock_lost: asyncio.Event, acting: Callable[[], None]) -> None:
        """Act until something ends. `acting` is called once every task runs. The caller holds the lock."""
        settings, names = self.settings, self.state.names
        queues = StaticQueues(self.state, self.management)
        await _unless_ended(connection, lock_lost, queues.usable())
        await self._check_topology()
        await self._adopt()
        limits = settings.limits
        publisher = Publisher(connection, timeout=settings.broker.timeout)
        budget = WakeBudget(burst=limits.new_keys, interval=limits.new_key_interval)
        error_replies = ErrorReplies(names, publisher, self.metrics)
        listener = ActivityListener(self.state, self.metrics, debounce=settings.intervals.debounce)
        # Twice the bytes that may be held, and as much again for messages that only pass through.
        most_bytes = 3 * limits.held_bytes

        def handle_orphans(channel: Channel, tasks: asyncio.TaskGroup) -> MemoryLimit:
            deliveries = MemoryLimit(channel, limit=most_bytes)
            forwarder = OrphanForwarder(
                state=self.state,
                deliveries=deliveries,
                publisher=publisher,
                error_replies=error_replies,
                lifecycle=self.lifecycle,
                metrics=self.metrics,
                tasks=tasks,
                prefetch=limits.orphan_prefetch,
                pool=settings.pool,
                budget=budget,
                user=connection.user,
                holding=HeldMessages(
                    per_key=limits.held_orphans_per_key,
                    total=limits.orphan_prefetch // 2,
                    total_bytes=limits.held_bytes,
                ),
                orphan_ttl_ms=milliseconds(settings.pool.orphan_ttl),
            )
            tasks.create_task(deliveries.run(forwarder.on_message), name="orphans")
            return deliveries

        def handle_letters(channel: Channel, tasks: asyncio.TaskGroup) -> MemoryLimit:
            deliveries = MemoryLimit(channel, limit=most_bytes)
            responder = DeadLetterResponder(
                state=self.state,
                deliveries=deliveries,
                publisher=publisher,
                error_replies=error_replies,
                lifecycle=self.lifecycle,
                metrics=self.metrics,
                tasks=tasks,
                prefetch=limits.dead_letter_prefetch,
                message_ttl=settings.pool.message_ttl,
                worker_reasons=settings.pool.worker_reasons,
            )
            tasks.create_task(deliveries.run(responder.on_message), name="dead-letters")
            return deliveries

        orphans = QueueFeed(
            names.orphan_queue, partial(self.connect, "orphans"), handle_orphans, prefetch=limits.orphan_prefetch
        )
        letters = QueueFeed(
            names.dead_letter_queue,
            partial(self.connect, "dead letters"),
            handle_letters,
            prefetch=limits.dead_letter_prefetch,
        )
        taking_back = TakingBack(
            state=self.state,
            publisher=publisher,
            user=connection.user,
            orphan_ttl_ms=milliseconds(settings.pool.orphan_ttl),
            message_ttl_ms=milliseconds(settings.pool.message_ttl),
            delivery_limit=settings.pool.delivery_limit,
        )
        activity = ActivityFeed(names.activity_queue, partial(self.connect, "activity"), listener.on_message)
        async with asyncio.TaskGroup() as tasks:
            work = {
                **self._loops(connection, queues, taking_back),
                "orphan-feed": orphans.run(),
                "dead-letter-feed": letters.run(),
                "activity-feed": activity.run(),
                "activity": listener.run(),
                "connection": end_with(connection),
                "lock": _end_without(lock_lost),
            }
            for name, coroutine in work.items():
                tasks.create_task(coroutine, name=name)
            acting()

    def _loops(
        self, connection: Connection, queues: StaticQueues, taking_back: TakingBack
    ) -> dict[str, Coroutine[Any, Any, None]]:
        """Return what runs beside the consumers, by name."""
        settings, state, management = self.settings, self.state, self.management
        intervals, limits = settings.intervals, settings.limits
        queue_loop = QueueLoop(
            state,
            ChannelPool(connection, limits.queue_actions),
            management,
            self.lifecycle,
            self.metrics,
            statistics_interval=settings.broker.statistics_interval,
            recheck=intervals.recheck,
            most=settings.pool.limits.groups,
            take_back=taking_back.take,
        )
        watcher = QueueWatcher(
            state,
            management,
            lambda: connection.blocked_reason,
            interval=intervals.queue_listing,
            lateness=settings.broker.statistics_interval,
        )
        loops = {
            "target-clock": pass_time(state),
            "warmer": keep_warm(state, Schedule(settings.pool.overrides), wall_ms),
            "queue-loop": queue_loop.run(),
            "queue-watcher": watcher.run(),
            "topology-watcher": watch_topology(
                topology(settings.pool), management, queues, self.metrics, interval=intervals.topology_check
            ),
        }
        if self.driver.owns_workers:
            group_loop = GroupLoop(
                state,
                self.driver,
                self.lifecycle,
                self.metrics,
                limits,
                patience=settings.pool.consumer_timeout + limits.start_grace,
                late=settings.broker.statistics_interval,
                listing_interval=intervals.engine_listing,
            )
            loops["worker-loop"] = group_loop.run()
        return loops

    async def _check_topology(self) -> None:
        """Raise an error while a static object is missing without which requests cannot be forwarded or answered.

        Without the others the daemon can act; the topology watcher reports them.
        """
        needed, live = needed_to_act(topology(self.settings.pool)), await self.management.topology()
        missing = [difference.object for difference in drift(needed, live) if difference.rule == "missing"]
        if missing:
            raise SessionEnded(
                f"the pool's topology is not complete: {', '.join(missing)} missing; apply it (pulumi up, or "
                "ansible-playbook playbooks/dev.yml), then `osrdyne lint` shows what is left"
            )

    async def _adopt(self) -> None:
        """Take over every existing request queue: a restart forgets no key."""
        # Drop keys whose time ran out meanwhile: if they have no queue any more, another daemon has led since.
        self.state.tracker.advance(self.state.clock())
        found = await self.management.request_queues(self.state.names)
        for queue in found:
            if queue.key is None:
                log.warning("a foreign queue has a request queue's name; left alone", extra={"queue": queue.name})
        adopt(self.state, [queue.key for queue in found if queue.key is not None])


async def _unless_ended(connection: Connection, lock_lost: asyncio.Event, work: Awaitable[None]) -> None:
    """Wait for work that may need a person's action, unless the connection or the lock is lost first."""
    async with asyncio.TaskGroup() as tasks:
        ends = [tasks.create_task(end_with(connection)), tasks.create_task(_end_without(lock_lost))]
        await work
        for end in ends:
            end.cancel()


async def _end_without(lock_lost: asyncio.Event) -> None:
    await lock_lost.wait()
    raise SessionEnded("the lock is lost: the leader queue was deleted")
