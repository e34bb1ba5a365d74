"""The values of `x-status` in a reply: one table, for clients, workers, the daemon and the documentation."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

OK = "ok"
EXPIRED = "expired"
DELIVERY_LIMIT = "delivery_limit"
MAXLEN = "maxlen"
REJECTED = "rejected"
INVALID_KEY = "invalid_key"
UNROUTABLE = "unroutable"
INVALID_REQUEST = "invalid_request"
ERROR = "error"
THROTTLED = "throttled"
START_FAILED = "start_failed"

#: Every status that a reply of this project carries, and its meaning for the client.
STATUSES: Mapping[str, str] = MappingProxyType(
    {
        OK: "A worker answered; the body is its answer.",
        ERROR: "A worker took the request and answered that it cannot serve it; the body says why.",
        EXPIRED: "The request was not taken by a worker before its deadline or the pool's time to live.",
        DELIVERY_LIMIT: "Workers took the request and failed, too often; a copy is in the poison inventory.",
        MAXLEN: "The request queue of this key is full.",
        REJECTED: "A worker or the daemon refused the request; trying again will not help.",
        INVALID_KEY: "The routing key holds NUL or is not UTF-8; no worker can be given such a key.",
        INVALID_REQUEST: "The request cannot be forwarded as it is, for example because of a CC header.",
        UNROUTABLE: "The request was forwarded several times and found no queue each time.",
        THROTTLED: "The request would wake a new key; its user or the pool may have no more for now. Try again later.",
        START_FAILED: "Workers of this key could not be started, several times in a row. Try again later.",
    }
)

#: Reasons that RabbitMQ gives for dead-lettering (RabbitMQ documentation, "Dead Letter Exchanges").
DEAD_LETTER_REASONS = frozenset({EXPIRED, DELIVERY_LIMIT, MAXLEN, REJECTED})

#: Longest line of a body that the text of an error has, in characters.
LONGEST_LINE = 200


def first_line(body: bytes) -> str:
    """Return the first line that is not blank of what an error reply says, cut; empty where its body is not text."""
    try:
        text = body[: 4 * LONGEST_LINE].decode("utf-8", errors="ignore" if len(body) > 4 * LONGEST_LINE else "strict")
    except UnicodeDecodeError:
        return ""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return line[:LONGEST_LINE] if line.isprintable() else ""
