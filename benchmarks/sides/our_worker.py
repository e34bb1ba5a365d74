"""A worker on our library that echoes."""

from __future__ import annotations

from benchmarks.sides import turns
from osrdyne_worker import Request, run


def echo(request: Request) -> bytes:
    return request.body


if __name__ == "__main__":
    options = turns.options()
    run(echo, prefetch=options["prefetch"], threads=options["threads"])
