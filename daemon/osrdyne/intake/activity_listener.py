"""The activity listener: turns what workers report into facts about keys.

Only `started`, `request-received`, `finished` and `alive` count, and only for a key that has a queue: an event
of an unknown key wakes nothing. Events are consumed without acknowledgements. The broker may lose some
(docs/reference/rabbitmq-facts.md#messages-that-vanish); this does no harm, because lack of activity alone
stops nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

from osrdyne.base.changes import ChangeReader
from osrdyne.intake import activity_rules
from osrdyne.intake.bursts import Bursts
from osrdyne.metrics import Metrics
from osrdyne.state.delivery_history import LONGEST_ID, PastDelivery
from osrdyne.state.pool import PoolState
from osrdyne_amqp import Message
from osrdyne_protocol import events, headers, keys
from osrdyne_protocol.errors import InvalidKey
from osrdyne_protocol.event_batches import UnreadableBatch, unpack

#: Events on this exchange that do not count as activity.
_OTHERS = events.LIFECYCLE | events.BY_A_PERSON | {events.STOPPING, events.INTERRUPTED}
#: Longest time in a queue that is believed, in milliseconds: a day.
_LONGEST_QUEUED_MS = 86_400_000


class ActivityListener:
    """Handles one message at a time and never waits. `run` forgets keys whose queue is gone. `debounce` in seconds."""

    def __init__(self, state: PoolState, metrics: Metrics, *, debounce: float) -> None:
        self._state = state
        self._metrics = metrics
        self._debounce = Bursts(debounce)

    async def run(self) -> None:
        """Forget the activity of keys that no longer have a queue, until cancelled."""
        with ChangeReader().following(self._state.queues.forgotten) as forgotten:
            while True:
                for key in await forgotten.take(None):
                    if self._state.queues.get(key) is None:
                        self._state.activity.pop(key, None)
                        self._state.tally.woken.pop(key, None)

    def on_message(self, message: Message) -> None:
        """Handle the events of one message. Never raises: what is unreadable is counted and dropped."""
        try:
            given = unpack(message.properties.headers, message.body)
            key = keys.decode(message.routing_key)
        except (UnreadableBatch, InvalidKey):
            self._metrics.activity.labels("unreadable").inc()
            return
        for event in given:
            self._on_event(key, event)

    def _on_event(self, key: str, given: Mapping[str, object]) -> None:
        event = headers.text(given.get(headers.X_EVENT))
        if event == events.STOPPING:
            # It renews nothing.
            self._state.activity.note_stopping(key, self._state.clock())
        if event not in events.ACTIVITY:
            self._metrics.activity.labels("own" if event in _OTHERS else "unreadable").inc()
            return
        if self._state.queues.get(key) is None:
            self._metrics.activity.labels("unknown_key").inc()
            return
        self._metrics.activity.labels(event).inc()
        self._measure(key, event, given)
        self._note(key, event, headers.text(given.get(headers.X_WORKER_ID)) or "")
        self._note_request(key, event, given)

    def _measure(self, key: str, event: str, given: Mapping[str, object]) -> None:
        """Count how a request ended, and how long requests waited: for a worker to start, or in their queue."""
        if event == events.FINISHED:
            outcome = headers.text(given.get(headers.X_OUTCOME))
            if outcome != events.REQUEUED:
                self._metrics.ended(outcome)
        elif event in (events.STARTED, events.REQUEST_RECEIVED):
            woken = self._state.tally.woken.pop(key, None)
            if woken is not None and event == events.STARTED:
                self._metrics.cold_start_seconds.observe(self._state.clock() - woken)
            queued = headers.integer(given, headers.X_QUEUED)
            if queued is not None and 0 <= queued <= _LONGEST_QUEUED_MS:
                self._metrics.queue_seconds.observe(queued / 1000)

    def _note(self, key: str, event: str, worker_id: str) -> None:
        state, now = self._state, self._state.clock()
        first_sign = state.activity.note(key, event, now, worker_id[:LONGEST_ID])
        if self._renew(key, event, now) or first_sign or event == events.STARTED:
            state.activity.changes.add(key)

    def _renew(self, key: str, event: str, now: float) -> bool:
        """Renew a key; return whether this event renewed it. Later events of a burst do not."""
        state = self._state
        extra_lifetime = activity_rules.extra_lifetime(state.tracker, self._debounce, key, event, now)
        if extra_lifetime is None:
            return False
        if event == events.STARTED:
            return state.tracker.renew_on_worker_start(key, now, extra_lifetime=extra_lifetime)
        state.require(key, extra_lifetime=extra_lifetime)
        return True

    def _note_request(self, key: str, event: str, given: Mapping[str, object]) -> None:
        """Remember which worker has which request until it has answered."""
        request_id, worker_id = (
            headers.text(given.get(headers.X_REQUEST_ID)),
            headers.text(given.get(headers.X_WORKER_ID)),
        )
        if request_id is None:
            return
        if event == events.REQUEST_RECEIVED and worker_id is not None:
            time_ms = headers.integer(given, headers.X_EVENT_TIME)
            handout = PastDelivery(worker_id, events.wall_ms() if time_ms is None else time_ms)
            self._state.activity.delivery_history.add(key, request_id, handout)
        elif event == events.FINISHED and headers.text(given.get(headers.X_OUTCOME)) != events.REQUEUED:
            self._state.activity.delivery_history.forget(key, request_id)
