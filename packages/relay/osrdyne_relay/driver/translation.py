"""What a request of a pool is on the relay, and what a response of the relay is in the pool. Pure."""

from __future__ import annotations

from osrdyne_protocol import statuses
from osrdyne_protocol.headers import X_DEADLINE, X_REASON, X_STATUS
from osrdyne_relay.errors import InvalidCall, RelayError, TooLarge, UnreadableResponse
from osrdyne_relay.messages import CORRELATION_HEADER, REDELIVERED_HEADER, Request, Response
from osrdyne_worker import Reject, Requeue, WorkerError
from osrdyne_worker import Request as PoolRequest

#: Headers that say of a request what AMQP says by properties.
_OURS = {CORRELATION_HEADER, REDELIVERED_HEADER, X_DEADLINE}


def endpoint_of(pool: str, key: str) -> str:
    """Return the endpoint at which the workers of a key poll."""
    return f"{pool}/{key}"


def request_of(request: PoolRequest) -> Request:
    """Return a request in the form of the relay, with those headers that are text."""
    headers = {name: value for name, value in request.headers.items() if isinstance(value, str) and name not in _OURS}
    if request.correlation_id is not None:
        headers[CORRELATION_HEADER] = request.correlation_id
    if request.redelivered:
        headers[REDELIVERED_HEADER] = "true"
    if request.deadline is not None:
        headers[X_DEADLINE] = str(round(request.deadline * 1000))
    return Request(request.body, headers)


def waits_for(request: PoolRequest, longest: float, now: float) -> float:
    """Return the seconds for which a request may wait for a worker: up to its deadline, and at most `longest`.

    `now`: seconds since the Unix epoch.
    """
    left = longest if request.deadline is None else min(longest, request.deadline - now)
    return max(left, 0.001)


def answer_of(response: Response) -> bytes:
    """Return the answer to a pool's caller. Raises what a handler raises where it is not an answer."""
    status = response.headers.get(X_STATUS, statuses.OK)
    reason = response.headers.get(X_REASON)
    if response.streams:
        raise WorkerError(reason="the worker answered with data streams, which a pool does not carry")
    match status:
        case statuses.OK:
            return response.body
        case statuses.ERROR:
            raise WorkerError(response.body, reason)
        case statuses.REJECTED:
            raise Reject(reason or "")
        case statuses.EXPIRED:
            # The library finds the deadline passed when it takes the request again, and answers so.
            raise Requeue
        case _:
            raise WorkerError(reason=f"the worker answered with the status {status[:100]!r}, which is none of a worker")


def failure_of(error: RelayError) -> Exception:
    """Return what a handler raises for a call that ended with an error.

    A request that did not run goes back to its queue, where it expires in its time. One that may have run goes back,
    too: as when a worker dies, the delivery counts, and its limit ends a request that kills its workers.
    """
    if isinstance(error, TooLarge | InvalidCall):
        return Reject(str(error))
    if isinstance(error, UnreadableResponse):
        return WorkerError(reason=str(error))
    return Requeue(str(error))
