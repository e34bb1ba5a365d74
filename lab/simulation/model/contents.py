"""What a queue holds: how messages come in, expire and die."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from simulation.model import history
from simulation.model.entries import Consumer, Entry, UnsettledDelivery
from simulation.model.message import Message
from simulation.model.policies import Rules
from simulation.model.samples import Samples

if TYPE_CHECKING:
    from simulation.model.objects import Objects


class Contents:
    """The messages of a queue; `Queue` adds who gets them."""

    def __init__(
        self,
        broker: Objects,
        name: str,
        kind: str,
        *,
        durable: bool,
        auto_delete: bool,
        owner: str | None,
        arguments: Mapping[str, Any],
    ) -> None:
        self.name = name
        self.kind = kind
        self.durable = durable
        self.auto_delete = auto_delete
        #: name of the connection that it is exclusive to
        self.owner = owner
        self.arguments = arguments
        self.rules = Rules()
        self.deleted = False
        #: the broker lost it: it is listed and bound, and nothing reaches it
        self.lost = False
        #: when it was declared
        self.made_at = broker.loop.time()
        self.consumers: deque[Consumer] = deque()
        #: when its last consumer went, or when it was declared; with a consumer it says nothing
        self.unserved_since = self.made_at
        #: from when until when it last had no consumer, before the ones that it has or last had
        self.unserved_before = (self.made_at, self.made_at)
        self.unacked: dict[Entry, UnsettledDelivery] = {}
        #: dead letters that the target has not confirmed yet
        self.dead_lettering: dict[Entry, str] = {}
        self.samples = Samples()
        #: when the latest of its dead letters is published
        self.last_letter = 0.0
        #: how many messages it has taken
        self.came = 0
        #: how many deliveries it has made
        self.delivered = 0
        self._returned: deque[Entry] = deque()
        self._fresh: deque[Entry] = deque()
        self._broker = broker
        self._loop = broker.loop
        self._expiry: asyncio.TimerHandle | None = None

    def pump(self) -> None:
        """Deliver what can be delivered."""
        raise NotImplementedError

    # --- what it holds ---

    @property
    def ready(self) -> list[Entry]:
        return [*self._returned, *self._fresh]

    @property
    def ready_count(self) -> int:
        return len(self._returned) + len(self._fresh)

    def by_state(self) -> list[tuple[str, list[Entry]]]:
        """What it holds: ready, unacknowledged, and dead letters that have not arrived yet."""
        return [
            ("ready", self.ready),
            ("unacknowledged", list(self.unacked)),
            ("dead lettering", list(self.dead_lettering)),
        ]

    def all_messages(self) -> list[Message]:
        entries = (*self._returned, *self._fresh, *self.unacked, *self.dead_lettering)
        return [entry.message for entry in entries]

    def sampled(self) -> None:
        """To be called before each change of the totals: they are what a sample that was due shows."""
        self.samples.note(self._broker, self)

    # --- in ---

    def enqueue(self, message: Message) -> bool:
        """Take a message; False: refused, because the queue is full or lost."""
        if self.lost:
            return False
        if self.deleted:
            # RabbitMQ confirms what was on its way to a quorum queue that is gone, and refuses for a classic one.
            self._broker.record(history.LOST, place=self.name, message=message, detail="queue was deleted meanwhile")
            return self.kind != "classic"
        rules = self.rules
        self.sampled()
        if rules.max_length is not None and self.ready_count >= rules.max_length:
            if rules.reject_publish:
                return False
            self._drop_head(rules.max_length - 1)
        self.came += 1
        entry = Entry(message, self.came, self._expires_at(message))
        self._fresh.append(entry)
        self._broker.record(history.ROUTED, place=self.name, message=message)
        if self.consumers:
            self.pump()
        if entry.expires_at is not None:
            self._watch_head()
        return True

    def _expires_at(self, message: Message) -> float | None:
        ttl = self.rules.ttl
        expiration = message.properties["expiration"]
        if expiration is not None:
            own = int(expiration) / 1000
            ttl = own if ttl is None else min(ttl, own)
        return None if ttl is None else self._loop.time() + ttl

    def _drop_head(self, keep: int) -> None:
        while self.ready_count > max(keep, 0):
            self._leave((self._returned or self._fresh).popleft(), "maxlen")

    # --- the end of a message ---

    def _leave(self, entry: Entry, reason: str) -> None:
        """A message dies: it goes to the dead-letter exchange, or nowhere."""
        self.sampled()
        if self.rules.dead_letter_exchange is None or (reason == "maxlen" and self.rules.at_least_once):
            self._broker.record(history.DROPPED, place=self.name, message=entry.message, detail=reason)
            return
        self._broker.record(history.DEAD_LETTERED, place=self.name, message=entry.message, detail=reason)
        self.dead_lettering[entry] = reason
        self._broker.dead_letters.begin(self, entry, reason)

    def _expire_head(self, now: float) -> bool:
        """Remove from the head what has expired before `now`; False when nothing is left."""
        while self._fresh or self._returned:
            lane = self._returned or self._fresh
            expires_at = lane[0].expires_at
            if expires_at is None or expires_at >= now:
                return True
            self._broker.record(history.EXPIRED, place=self.name, message=lane[0].message)
            self._leave(lane.popleft(), "expired")
        return False

    def _watch_head(self) -> None:
        lane = self._returned or self._fresh
        if not lane or (at := lane[0].expires_at) is None:
            return
        if self._expiry is not None:
            if self._expiry.when() <= at:
                return
            self._expiry.cancel()
        self._expiry = self._loop.call_at(at, self._expire)

    def _expire(self) -> None:
        self._expiry = None
        if not self.deleted:
            # A moment later, so that what expires at once can still be delivered at once.
            self._expire_head(self._loop.time() + 1e-6)
            self._watch_head()
