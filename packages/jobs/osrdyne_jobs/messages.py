"""What is cast: which job is to be looked for. Pure.

A worker that gets it looks into the database for what is to be done, so a message that is lost, late or doubled does no
harm. The body is JSON: `{"type": ..., "job": ...}`; the resource is the routing key.
"""

from __future__ import annotations

import json

from osrdyne_protocol import foreign_json

#: Bytes of a message that is read: it names a type and a number.
_MOST_BYTES = 4096


class NotAHint(ValueError):
    """The body of a message does not name a type of job."""


def encode(type: str, job: int) -> bytes:  # noqa: A002 - the field's name
    """Return the body of a message."""
    return json.dumps({"type": type, "job": job}, separators=(",", ":")).encode()


def decode(body: bytes) -> str:
    """Return the type of job that a message names. Raises NotAHint.

    The job is for people who look at the message. What it asks for is in the database: ids come again after a restore.
    """
    try:
        named = foreign_json.read(body, most=_MOST_BYTES)
    except foreign_json.UnreadableJson as error:
        raise NotAHint(f"the request cannot be read: {error}; jobs are cast by osrdyne_jobs") from None
    if not isinstance(named, dict) or not isinstance(named.get("type"), str):
        raise NotAHint('the request has no "type"; jobs are cast by osrdyne_jobs')
    return str(named["type"])
