"""All names in Redis, and what is under each. No other module puts a name together. Pure.

| name | type | holds |
|---|---|---|
| `{prefix}:{{endpoint}}:waiting` | list | ids of requests that wait for a node, oldest first |
| `{prefix}:{{endpoint}}:life` | string | a random value for as long as Redis keeps its data; see `transactions` |
| `{prefix}:{{endpoint}}:call:{id}` | hash | one call; the fields are below |
| `{prefix}:{{endpoint}}:polled` | string | is there while a worker polls at some node |
| `{prefix}:{{endpoint}}:pulse` | channel | ids of new requests |
| `{prefix}:{{endpoint}}:polled` | channel | a worker begins to poll at a node |
| `{prefix}:node:{node}` | channel | pulses for the calls that a node makes or serves |

The braces show where the endpoint begins and ends.
"""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import quote

from osrdyne_relay.errors import InvalidCall

#: Most bytes of an endpoint: a pool's name, a slash and a key fit.
MOST_ENDPOINT = 512

#: Fields of a call's hash.
REQUEST = "request"
#: Token of the node that collected the request, or WITHDRAWN.
CLAIM = "claim"
RESPONSE = "response"
#: Counters of the heartbeats of both sides.
CALLER_BEAT = "caller"
SERVER_BEAT = "server"
#: Set when the caller wants the request cancelled, and when the caller has given it up.
CANCEL = "cancel"
OVER = "over"

#: The claim of a caller that takes its own request back.
WITHDRAWN = "-"

_ID = re.compile(r"[0-9a-f]{32}", re.ASCII)
_TOKEN = re.compile(r"([0-9a-f]{32})\.[0-9a-f]{32}", re.ASCII)


def new_id() -> str:
    """Return a new name of a call, a node, a life or a stream: 128 random bits as 32 hexadecimal digits."""
    return secrets.token_hex(16)


def is_id(text: str) -> bool:
    """Whether `new_id` can have made this."""
    return _ID.fullmatch(text) is not None


def id_from(raw: bytes) -> str | None:
    """Return the id that bytes from Redis are; None where they are none."""
    text = raw.decode("latin-1") if len(raw) == 32 else ""
    return text if is_id(text) else None


def new_token(node: str) -> str:
    """Return a token for one attempt of a node to collect one request."""
    return f"{node}.{new_id()}"


def node_of(token: bytes) -> str | None:
    """Return the node that made a token; None where it is not a token of ours."""
    found = _TOKEN.fullmatch(token[:66].decode("latin-1")) if len(token) == 65 else None
    return found[1] if found else None


@dataclass(frozen=True, slots=True)
class Names:
    """The names below one prefix. Relays with different prefixes share a Redis and nothing else."""

    prefix: str = "osrdyne-relay"

    def waiting(self, endpoint: str) -> str:
        return self._of(endpoint, "waiting")

    def life(self, endpoint: str) -> str:
        return self._of(endpoint, "life")

    def call(self, endpoint: str, call: str) -> str:
        return self._of(endpoint, f"call:{call}")

    def polled(self, endpoint: str) -> str:
        return self._of(endpoint, "polled")

    def pulse(self, endpoint: str) -> str:
        return self._of(endpoint, "pulse")

    def node(self, node: str) -> str:
        return f"{self.prefix}:node:{node}"

    def _of(self, endpoint: str, what: str) -> str:
        return f"{self.prefix}:{{{_quoted(endpoint)}}}:{what}"


@lru_cache(maxsize=4096)
def _quoted(endpoint: str) -> str:
    # A brace in the endpoint would end the hash tag.
    return quote(endpoint, safe="/:.~_-")


def check_endpoint(endpoint: str) -> str:
    """Return an endpoint that can be used. Raises InvalidCall."""
    if not isinstance(endpoint, str):
        raise InvalidCall(f"an endpoint is text, not {type(endpoint).__name__}")
    try:
        size = len(endpoint.encode("utf-8"))
    except UnicodeEncodeError:
        raise InvalidCall(f"endpoint {endpoint!r} is not UTF-8 text: give it another name") from None
    if not 0 < size <= MOST_ENDPOINT or "\0" in endpoint:
        raise InvalidCall(f"endpoint {endpoint[:80]!r}: give it 1 to {MOST_ENDPOINT} bytes without NUL")
    return endpoint
