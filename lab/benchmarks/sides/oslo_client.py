"""A client of oslo.messaging, with a thread for each call at a time: its calls block.

It carries JSON: the bytes travel as as many characters.
"""

from __future__ import annotations

import asyncio

import oslo_messaging

from benchmarks.sides import turns
from benchmarks.sides.oslo_transport import transport


def main() -> None:
    client = oslo_messaging.get_rpc_client(transport(), oslo_messaging.Target(topic="bench"))
    body = turns.BODY.decode("latin-1")

    def call() -> bytes:
        answer: str = client.call({}, "echo", body=body)
        return answer.encode("latin-1")

    asyncio.run(turns.serve(lambda seconds, outstanding: turns.in_threads(call, seconds, outstanding)))


if __name__ == "__main__":
    main()
