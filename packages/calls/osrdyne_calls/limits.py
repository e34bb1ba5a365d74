"""How large a body may be, and how long a request lives, where a program says nothing else. Pure."""

from __future__ import annotations

#: Most bytes of a body, by default. RabbitMQ refuses messages above `max_message_size`, 16 MiB by default since 4.0;
#: the margin is for a broker or a plugin that counts more than the body.
MAX_BODY = 16 * 1024 * 1024 - 64 * 1024
#: A request's deadline is a little before its call's timeout, so that the reply that says where it expired comes in
#: time: by this share of the timeout, and by this many seconds at most.
DEADLINE_MARGIN_SECONDS, DEADLINE_SHARE = 0.5, 0.05


def lifetime(timeout: float) -> float:
    """Return the seconds after which a request expires whose caller waits for `timeout` seconds."""
    return timeout - min(DEADLINE_MARGIN_SECONDS, timeout * DEADLINE_SHARE)
