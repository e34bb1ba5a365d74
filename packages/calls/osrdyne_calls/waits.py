"""How far a request has come that waits for its answer, and the words for it. Pure.

The one place for these words: what ends a wait says with them what the wait was for.
"""

from __future__ import annotations

import enum


class Wait(enum.StrEnum):
    """How far a request has come. It goes through these in order, and may leave some out, or begin again."""

    #: There is no connection.
    CONNECTING = "connecting"
    #: The broker is in an alarm of memory or disk, and takes no messages.
    BLOCKED = "blocked"
    #: It has not left, though there is a connection.
    UNSENT = "unsent"
    #: It has left, and the broker has not confirmed it.
    SENT = "sent"
    #: The broker has it.
    CONFIRMED = "confirmed"

    def words(self, detail: object = None, *, left: bool = False) -> str:
        """Return what the wait was for, and where to look. `detail`: why there is an alarm, or no connection.

        `left`: whether the request may have left.
        """
        match self:
            case Wait.CONNECTING:
                return f"the broker is away ({detail})" + ("; it may have the request" if left else "")
            case Wait.BLOCKED:
                then = "it may take the request when that is over" if left else "the request was not sent"
                return f"the broker takes no messages in its alarm ({detail}); {then} (see `osrdyne status`)"
            case Wait.UNSENT:
                return (
                    "it did not leave in time: the key's queue has not answered for requests before it (see "
                    "`osrdyne status`), the broker was away, or this process stood still"
                )
            case Wait.SENT:
                return "the broker has not confirmed the request: its queue may have no leader (see `osrdyne status`)"
            case Wait.CONFIRMED if detail is not None:
                return (
                    f"the broker took the request, and is in an alarm ({detail}): it may hold back the reply of its "
                    "worker (see `osrdyne status`)"
                )
            case Wait.CONFIRMED:
                return "the broker took the request; its worker may be starting, busy or failing (see `osrdyne status`)"
