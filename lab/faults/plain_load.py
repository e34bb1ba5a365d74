"""A client in plain pika that keeps a journal: `plain_load.py NAME JOURNAL POOL`.

It publishes with confirm, one request after the other, and publishes what was not confirmed again over the next
connection, under the same correlation id. What was confirmed it never sends again: that would hide a loss.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pika
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import AMQPError, NackError, UnroutableError

from faults import load
from faults.journal import Journal
from faults.load import Ask, Commands
from osrdyne_protocol import headers
from osrdyne_protocol.names import PoolNames

#: Seconds before it connects again.
PAUSE_SECONDS = 0.3
EXPIRES_MS = 600_000


class PlainClient:
    """One reply queue, over one connection after the other."""

    def __init__(self, who: str, journal: Journal, pool: PoolNames, commands: Commands) -> None:
        self._who = who
        self._journal = journal
        self._exchange = pool.request_exchange
        self._commands = commands
        user = pika.URLParameters(os.environ[load.URI_VARIABLE]).credentials.username
        self._replies = f"reply-{user}-{os.urandom(16).hex()}"
        self._number = 0
        #: The request of which nothing is known yet.
        self._open: tuple[str, Ask] | None = None

    def serve(self) -> None:
        """Send over one connection, until it ends or standard input does."""
        connection = pika.BlockingConnection(pika.URLParameters(os.environ[load.URI_VARIABLE]))
        try:
            self._serve(connection)
        finally:
            with contextlib.suppress(AMQPError):
                connection.close()

    def _serve(self, connection: pika.BlockingConnection) -> None:
        channel = connection.channel()
        channel.confirm_delivery()
        replies = connection.channel()
        replies.queue_declare(
            self._replies, durable=True, arguments={"x-queue-type": "classic", "x-expires": EXPIRES_MS}
        )
        replies.basic_consume(self._replies, self._on_reply)
        due = time.monotonic()
        while not self._commands.ended.is_set():
            if self._open is None:
                due = max(due + 1 / load.RATE, time.monotonic())
                while (left := due - time.monotonic()) > 0:
                    connection.process_data_events(left)
                self._open = self._next()
            if self._open is not None:
                self._publish(channel, *self._open)
                self._open = None

    def _next(self) -> tuple[str, Ask] | None:
        self._number += 1
        ask, name = load.ask(self._who, self._number), f"{self._who}-{self._number}"
        if not self._commands.allows(ask.key):
            return None
        self._journal.sent(name, ask.key, replies=ask.wants_reply)
        return name, ask

    def _publish(self, channel: BlockingChannel, name: str, ask: Ask) -> None:
        properties = pika.BasicProperties(
            correlation_id=name, reply_to=self._replies if ask.wants_reply else None, delivery_mode=2
        )
        try:
            channel.basic_publish(self._exchange, ask.key, ask.body(name), properties, mandatory=True)
        except (UnroutableError, NackError) as error:
            self._journal.refused(name, repr(error))
        else:
            self._journal.confirmed(name)

    def _on_reply(self, channel: Any, method: Any, properties: Any, _: bytes) -> None:
        status = headers.text((properties.headers or {}).get(headers.X_STATUS)) or "none"
        self._journal.answered(properties.correlation_id, status)
        channel.basic_ack(method.delivery_tag)


def main() -> None:
    """Send until the order to stop; end when standard input does."""
    who, path, pool = sys.argv[1:]
    commands = Commands()
    client = PlainClient(who, Journal(Path(path)), PoolNames(pool), commands)
    pause = threading.Event()
    while not commands.ended.is_set():
        try:
            client.serve()
        except (AMQPError, ValueError) as error:
            # ValueError is what pika raises when a connection is reset in the moment in which it is made.
            print(f"begins again: {error!r}", file=sys.stderr)
            pause.wait(PAUSE_SECONDS)


if __name__ == "__main__":
    main()
