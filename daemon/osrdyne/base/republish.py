"""The properties with which a message is published once more. Pure."""

from __future__ import annotations

import copy
from collections.abc import Collection

from osrdyne_amqp import Properties

#: Why a request with such a `reply-to` is kept.
REFUSED_REPLY_TO = "reply-to is not the address of a reply queue"


def republished(original: Properties, *, without: Collection[str]) -> Properties:
    """Return a copy of a message's properties for another publish: without these headers, and without its user."""
    result = copy.copy(original)
    result.headers = {name: value for name, value in (original.headers or {}).items() if name not in without}
    result.user_id = None
    return result
