"""The objects of the model broker, and what an administrator does to them.

Methods take effect at once, at the loop's time of the call.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextvars import copy_context
from typing import Any, Literal

from osrdyne_pool.topology import Permission, Policy, Topology
from simulation.model import history
from simulation.model.dead_letters import DeadLetters
from simulation.model.history import History, QueueAtDeletion
from simulation.model.message import Message
from simulation.model.policies import effective, rules
from simulation.model.queue import Queue
from simulation.model.routing import Exchange, Routing
from simulation.model.stream import Stream
from simulation.model.timing import ConfirmTiming, Range, Timing

Version = Literal["4.0", "4.3"]


class Objects:
    """Queues, exchanges, policies and users of one virtual host; `ModelBroker` adds who uses them."""

    def __init__(self, rng: random.Random, version: Version, timing: Timing | None, history: History | None) -> None:
        self.rng = rng
        self.version = version
        self.history = History() if history is None else history
        self.confirming = ConfirmTiming()
        self.timing = timing or Timing()
        self.default_queue_type = "quorum"
        self.loop = asyncio.get_running_loop()
        self.context = copy_context()
        #: Seconds since 1970 that the broker believes it is; the loop's time unless set.
        self.wall: Callable[[], float] = self.loop.time
        self.running = True
        #: Each is called with the name of each queue that is made, once it is.
        self.on_declared: list[Callable[[str], None]] = []
        self.queues: dict[str, Queue] = {}
        #: Those that are exclusive to a connection.
        self._exclusive: dict[str, Queue] = {}
        self.routing = Routing(self.queues)
        self.permissions: dict[str, Permission] = {}
        self.policies: dict[str, Policy] = {}
        self.dead_letters = DeadLetters(self)
        self._users: set[str] = set()
        self._number = 0
        self._serial = 0

    # --- the administrator ---

    def apply(self, topology: Topology) -> None:
        """Make what a topology declares, users and permissions too; what exists stays."""
        for permission in topology.permissions:
            self.grant(permission)
        for policy in topology.policies:
            self.policies[policy.name] = policy
        for exchange in topology.exchanges:
            if exchange.name not in self.routing.exchanges:
                self.routing.exchanges[exchange.name] = Exchange(exchange.name, exchange.type, exchange.arguments)
        for queue in topology.queues:
            if queue.name not in self.queues:
                self.add_queue(
                    (Stream if queue.type == "stream" else Queue)(
                        self,
                        queue.name,
                        queue.type,
                        durable=True,
                        auto_delete=False,
                        owner=None,
                        arguments=dict(queue.arguments),
                    ),
                    by="operator",
                )
        for binding in topology.bindings:
            self.bind_queue(binding.queue, binding.exchange, binding.routing_key)
        self._apply_policies()

    def put_policy(self, policy: Policy) -> None:
        self.policies[policy.name] = policy
        self._apply_policies()

    def remove_policy(self, name: str) -> Policy:
        """Remove a policy and return it, for `put_policy`."""
        self.record(history.FAULT, detail=("remove_policy", name))
        policy = self.policies.pop(name)
        self._apply_policies()
        return policy

    def _apply_policies(self) -> None:
        for exchange in self.routing.exchanges.values():
            policy = effective(self.policies.values(), "exchange", exchange.name)
            exchange.alternate = exchange.arguments.get("alternate-exchange", policy.get("alternate-exchange"))
        for queue in list(self.queues.values()):
            self._apply_policy(queue)

    def _apply_policy(self, queue: Queue) -> None:
        policy = effective(self.policies.values(), queue.kind, queue.name)
        queue.apply(rules(queue.kind, queue.arguments, policy))

    def grant(self, permission: Permission) -> None:
        """Set a user's permissions; makes the user when there is none."""
        self._users.add(permission.user)
        self.permissions[permission.user] = permission

    def revoke(self, user: str) -> Permission:
        """Take all permissions from a user and return them, for `grant`. Its next operations are refused."""
        self.record(history.FAULT, detail=("revoke", user))
        return self.permissions.pop(user)

    def bind_queue(self, name: str, exchange: str, routing_key: str, *, by: str = "operator") -> None:
        if self.routing.bind(self.queues[name], exchange, routing_key):
            self.record(history.BOUND, by, name, detail=(exchange, routing_key))

    def unbind_queue(self, name: str, exchange: str, routing_key: str, *, by: str = "operator") -> None:
        queue = self.queues.get(name)
        if queue is not None and self.routing.unbind(queue, exchange, routing_key):
            self.record(history.UNBOUND, by, name, detail=(exchange, routing_key))

    def delete_queue(self, name: str, *, by: str = "operator") -> None:
        """Delete a queue with all it holds. Nothing happens when there is none."""
        queue = self.queues.get(name)
        if queue is not None:
            self.remove_queue(queue, by)

    def delete_exchange(self, name: str) -> None:
        """Delete an exchange with its bindings, as an operator does. Nothing happens when there is none."""
        for queue in list(self.queues.values()):
            for exchange, key in list(queue.bindings):
                if exchange == name:
                    self.routing.unbind(queue, exchange, key)
        self.routing.exchanges.pop(name, None)

    def add_queue(self, queue: Queue, *, by: str) -> None:
        self.queues[queue.name] = queue
        if queue.owner is not None:
            self._exclusive[queue.name] = queue
        self.record(history.DECLARED, by, queue.name)
        queue.sampled()
        self._apply_policy(queue)
        for notify in list(self.on_declared):
            notify(queue.name)

    def remove_queue(self, queue: Queue, by: str) -> None:
        """Delete a queue; what it held is gone, and its consumers are cancelled."""
        if queue.deleted:
            return
        name = queue.name
        counts = (queue.ready_count, len(queue.unacked), len(queue.dead_lettering), len(queue.consumers))
        self.record(history.DELETED, by, name, detail=QueueAtDeletion(*counts, tuple(queue.bindings), queue.lost))
        for what, entries in queue.by_state():
            for entry in entries:
                self.record(history.LOST, by, name, entry.message, what)
        queue.end()
        del self.queues[name]
        self._exclusive.pop(name, None)
        self.routing.forget(queue)
        for consumer in list(queue.consumers):
            consumer.channel.cancel_by_broker(consumer, "queue deleted")

    def owned_by(self, connection: str) -> list[Queue]:
        """Return the queues that are exclusive to a connection, in the order in which they were made."""
        return [queue for queue in self._exclusive.values() if queue.owner == connection]

    # --- for checkers ---

    def queue_names(self) -> list[str]:
        return list(self.queues)

    def messages(self, queue: str) -> list[Message]:
        """Return what a queue holds: ready, unacknowledged, and dead letters that have not arrived yet."""
        found = self.queues.get(queue)
        return [] if found is None else found.all_messages()

    # --- for the other parts of the model ---

    @property
    def now(self) -> float:
        return self.loop.time()

    def between(self, span: Range) -> float:
        """Return a random time of a range."""
        return span.least + (span.most - span.least) * self.rng.random()

    def record(
        self, kind: str, actor: str = "", place: str = "", message: Message | None = None, detail: Any = None
    ) -> None:
        self.history.add(self.loop.time(), kind, actor, place, message, detail)

    def next_number(self) -> int:
        self._number += 1
        return self._number

    def next_serial(self) -> int:
        self._serial += 1
        return self._serial
