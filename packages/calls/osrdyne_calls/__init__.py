"""What callers and workers share, whatever their requests go over: a pool, the relay or the bus. It has no transport.

For workers: `handling` has the request and what becomes of a handler's result or error, and `runners` where a handler
runs. For callers: `replies` is what comes back, `errors` how a call can fail, and `slots` match replies to calls in
flight, and `waits` says how far a request has come. `limits` has what is so unless a program says something else, and
`closing` how long the end of a connection may take.
"""

from osrdyne_calls.handling import Handler, Reject, Request, Requeue, WorkerError
from osrdyne_calls.replies import Reply

__all__ = ["Handler", "Reject", "Reply", "Request", "Requeue", "WorkerError"]
