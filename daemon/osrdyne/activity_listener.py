"""The activity listener: turns what workers report into facts about keys.

Only `started`, `request-received`, `finished` and `alive` count, and only for a key that has a queue: an event
of an unknown key wakes nothing. Events are acknowledged by being delivered; losing one costs nothing, because
nothing is stopped for lack of activity alone (broker-facts, pitfall 30).
"""

from __future__ import annotations

from osrdyne.debounce import Debounce
from osrdyne.metrics import Metrics
from osrdyne.pool_state import Activity, PoolState
from osrdyne_client.amqp import Message
from osrdyne_protocol import events, headers, keys
from osrdyne_protocol.errors import InvalidKey


class ActivityListener:
    """Handles one message at a time, without waiting for anything."""

    def __init__(self, state: PoolState, metrics: Metrics, *, debounce: float) -> None:
        self._state = state
        self._metrics = metrics
        self._debounce = Debounce(debounce)

    def on_message(self, message: Message) -> None:
        """Take one event. Never raises: what cannot be read is counted and dropped."""
        event = headers.text((message.properties.headers or {}).get(headers.X_EVENT))
        if event not in events.ACTIVITY:
            self._metrics.activity.labels(
                "own" if event in events.LIFECYCLE or event == events.STOPPING else "unreadable"
            ).inc()
            return
        try:
            key = keys.decode(message.routing_key)
        except InvalidKey:
            self._metrics.activity.labels("unreadable").inc()
            return
        if self._state.queues.get(key) is None:
            self._metrics.activity.labels("unknown_key").inc()
            return
        self._metrics.activity.labels(event).inc()
        self._note(key, event)

    def _note(self, key: str, event: str) -> None:
        state, now = self._state, self._state.clock()
        activity = state.activity.get(key)
        first_sign = activity is None
        if activity is None:
            activity = state.activity[key] = Activity(last_event=now)
        activity.last_event = now
        if event == events.STARTED:
            activity.last_started = now
        elif event == events.REQUEST_RECEIVED:
            activity.last_taken = now
        extra_lifetime = self._debounce.observe(key, now)
        if extra_lifetime is not None:
            state.require(key, extra_lifetime=extra_lifetime)
        if extra_lifetime is not None or first_sign or event == events.STARTED:
            state.activity_changes.add(key)
