"""What can go wrong with a call over the relay. Every text says what happened and what to do."""

from __future__ import annotations

from enum import StrEnum

from osrdyne_protocol.errors import OsrdyneError
from osrdyne_protocol.statuses import first_line


class Stage(StrEnum):
    """How far a call had come when it was cancelled."""

    #: No node collected it: it did not run, and will not.
    NEVER_COLLECTED = "never collected"
    #: A node had it: the worker may have done any part of it.
    WHILE_RUNNING = "cancelled while running"
    #: The response was there before; it is `Cancellation.response`.
    FINISHED_BEFORE = "finished before"


class RelayError(OsrdyneError):
    """Something is wrong with a call over the relay."""


class RelayClosed(RelayError):
    """This node is closing: it begins no more calls. Call another node."""


class NotCollected(RelayError):
    """No worker got the request, so it did not run: check that a worker polls as this endpoint, and call again."""


class PeerGone(RelayError):
    """The node on the other side stopped to beat. The request may have run: call again only if that does no harm."""


class CallerGone(RelayError):
    """The caller's node is gone or has given up: stop the work. No response is wanted."""


class DataLost(RelayError):
    """Redis lost its data during the call. The request may have run: call again only if that does no harm."""


class RedisAway(RelayError):
    """Redis did not answer in the time of the call, or of all tries. The request may have run: check Redis."""


class RedisRefused(RelayError):
    """Redis refused a command: check user, password, ACL, and who else uses these keys (docs/howto/relay-nodes.md)."""


class Cancelled(RelayError):
    """The call was cancelled; `stage` says how far it had come."""

    def __init__(self, stage: Stage) -> None:
        super().__init__(f"the call was cancelled: {stage}")
        self.stage = stage


class CallTimedOut(RelayError):
    """The call took longer than its timeout, and was cancelled; `stage` says how far it had come."""

    def __init__(self, stage: Stage, timeout: float) -> None:
        super().__init__(f"no response within {timeout:g} s: {stage}; give the call more time, or look at its worker")
        self.stage = stage
        #: In seconds.
        self.timeout = timeout


class CallFailed(RelayError):
    """The node that collected the request could not answer it; the text says why."""


class CallRefused(CallFailed):
    """A worker ran the request and has no good answer: see `status`, `reason` and `body`.

    Its text ends with the first line of the body, which for an exception is its class and its text.
    """

    def __init__(self, status: str, reason: str, body: bytes = b"") -> None:
        said = first_line(body)
        super().__init__(f"the worker answered {status!r}" + "".join(f": {text}" for text in (reason, said) if text))
        #: `error` or `rejected`, as of a worker over AMQP.
        self.status = status
        #: A sentence for a person; may be empty.
        self.reason = reason
        self.body = body


class UnreadableRecord(RelayError):
    """A record in Redis is not one of ours, or is damaged: check which programs write to these keys."""


class UnreadableResponse(UnreadableRecord):
    """The response cannot be read. The request has run: check that both nodes have the same version."""


class TooLarge(RelayError, ValueError):
    """A request or response is larger than a record may be: send large bodies as data streams."""


class InvalidCall(RelayError, ValueError):
    """An endpoint, header or stream has a name that cannot be used; nothing was sent."""


class UnknownRequest(RelayError, LookupError):
    """This node has no such request in hand: it was answered, given back or abandoned before."""


class StreamLost(RelayError):
    """A data stream is not there, or not whole: its call has ended, or it expired. Read streams while the call runs."""


class AccessDenied(RelayError):
    """The node does not know this token or certificate, or it may not do this: look at the node's access file."""


class TooMany(RelayError):
    """This client has as much open at the node as it may: end some of it, or raise `most` in the access file."""


class NodeStopping(RelayError):
    """This node stops and begins nothing more; nothing was sent. Use another node."""


class NodesAway(RelayError):
    """No node can be reached, or takes calls now; nothing was sent. Check the addresses and the nodes."""


class NodeLost(RelayError):
    """The connection to the node ended before it answered. The request may have run: call again only if that does no
    harm.
    """


class NodeFailed(RelayError):
    """The node answered something else than this version expects: check its log, and that its address is right."""
