"""A worker on our library that echoes. The option `events: false` switches its events off, to measure their cost."""

from __future__ import annotations

import contextlib
from unittest import mock

from benchmarks.sides import turns
from osrdyne_worker import Request, run
from osrdyne_worker.events import ActivityEvents


def echo(request: Request) -> bytes:
    return request.body


if __name__ == "__main__":
    options = turns.options()
    without_events = mock.patch.object(ActivityEvents, "tell")
    with contextlib.nullcontext() if options["events"] else without_events:
        run(echo, prefetch=options["prefetch"], threads=options["threads"])
