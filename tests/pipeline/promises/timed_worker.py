"""The minimal worker, whose events have their time and their request, too: it starts in a few hundredths of a
second, so that a thousand times as fast is not too fast for it. Start it with `python -I -S -E`, and its file.
"""

from __future__ import annotations

import _struct
import sys
import time

# `typing` takes longer than the rest.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

with open(sys.argv[1], "rb") as source:
    minimal: dict[str, Any] = {"__name__": "minimal"}
    exec(compile(source.read(), sys.argv[1], "exec"), minimal)  # noqa: S102 - our own
link, read = minimal["Link"], minimal["properties"]
request = b""


def event(self: Any, name: bytes) -> None:
    """Send an event with its time, and with its request, if it is of one."""
    short, long = minimal["short"], minimal["long"]
    headers = {b"x-event": name, b"x-worker-id": minimal["WORKER_ID"]}
    if name != b"started":
        headers[b"x-request-id"] = request
    if name == b"finished":
        headers[b"x-outcome"] = b"ok"
    fields = b"".join(short(key) + b"S" + long(value) for key, value in headers.items())
    fields += short(b"x-event-time") + b"l" + _struct.pack(">q", time.time_ns() // 1_000_000)
    self.publish(2, minimal["EVENTS"], minimal["KEY"], 1 << 13, long(fields), b"")


def answer(self: Any, delivery_tag: bytes, given: Any = link.answer) -> None:
    given(self, delivery_tag)
    self.event(b"finished")


def properties(flags: int, data: bytes) -> Any:
    global request  # noqa: PLW0603 - what is answered is one request at a time
    found = read(flags, data)
    request = found[0]
    return found


link.event, link.answer, minimal["properties"] = event, answer, properties
minimal["main"]()
