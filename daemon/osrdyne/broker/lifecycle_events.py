"""The daemon's own events on the activity exchange: a record of what happened to a pool.

They are sent without confirm, on a connection of their own, which the broker may close because of them: an event may
be lost, no request waits for one, and none ends the session. They carry keys and request ids, never bodies or the
broker's credentials.
"""

from __future__ import annotations

from collections.abc import Mapping

from osrdyne.state.worker_ends import LONGEST_REASON_OF_REQUEST
from osrdyne_amqp.event_line import EventLine
from osrdyne_protocol import events, headers

#: Longest request id that an event repeats, in characters.
_REQUEST_ID_LENGTH = 255


class LifecycleEvents:
    """Publishes lifecycle events of one daemon."""

    def __init__(self, line: EventLine, daemon_id: str) -> None:
        self._line = line
        self._daemon_id = daemon_id

    def record(
        self,
        event: str,
        key: str,
        *,
        request_id: str | bytes | None = None,
        outcome: str | None = None,
        reason: str | None = None,
        more: Mapping[str, str | int] | None = None,
    ) -> None:
        """Send one event about a key, with `more` headers. `reason` says why a request was not served, cut to one line.

        Never raises: an event that cannot be sent (a foreign message's key or id) must not fail its request.
        """
        identity = request_id if isinstance(request_id, str) else None
        why = {} if reason is None else {headers.X_REASON: " ".join(reason.split())[:LONGEST_REASON_OF_REQUEST]}
        self._line.send(
            key,
            [
                events.headers(
                    event,
                    now_ms=events.wall_ms(),
                    worker_id=self._daemon_id,
                    request_id=identity[:_REQUEST_ID_LENGTH] if identity else None,
                    outcome=outcome,
                )
                | why
                | dict(more or {})
            ],
        )
