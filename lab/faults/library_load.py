"""A client with our library that keeps a journal: `library_load.py NAME JOURNAL POOL`."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from faults import load
from faults.journal import Journal
from faults.load import Commands
from faults.timing import GIVE_UP_SECONDS, deadline
from osrdyne_amqp import Message
from osrdyne_amqp.errors import BrokerError
from osrdyne_client import AsyncClient
from osrdyne_client.calls import PendingCall
from osrdyne_client.dispatcher import Dispatcher
from osrdyne_protocol import headers
from osrdyne_protocol.errors import OsrdyneError

#: Seconds before a client that could not connect tries again.
PAUSE_SECONDS = 0.3


class WatchedDispatcher(Dispatcher):
    """A core that writes down what its callers do not see: the confirm, and every reply."""

    journal: Journal

    def _accepted(self, call: PendingCall) -> None:
        self.journal.confirmed(load.name_in(call.body))
        super()._accepted(call)

    def _on_reply(self, message: Message) -> None:
        status = headers.text((message.properties.headers or {}).get(headers.X_STATUS)) or "none"
        correlation_id = message.properties.correlation_id
        self.journal.answered(headers.text(correlation_id), status)
        super()._on_reply(message)


class WatchedClient(AsyncClient):
    """Our client, with a journal."""

    def __init__(self, uri: str, pool: str, journal: Journal) -> None:
        super().__init__(uri, pool, slots=4096, timeout=GIVE_UP_SECONDS, name="faults: library")
        self.core = WatchedDispatcher(uri, pool, self._dispatcher._options)
        self.core.journal = journal
        self._dispatcher = self.core


async def connected(uri: str, pool: str, journal: Journal) -> WatchedClient:
    """Return a client that is connected; the broker may be away when it starts."""
    while True:
        client = WatchedClient(uri, pool, journal)
        try:
            await client.open()
        except BrokerError as error:
            print(f"not connected: {error}", file=sys.stderr)
            await asyncio.sleep(PAUSE_SECONDS)
        else:
            return client


def send(client: WatchedClient, journal: Journal, ask: load.Ask, name: str) -> None:
    """Send one request, which is in the journal before it is anywhere else."""
    journal.sent(name, ask.key, replies=ask.wants_reply)
    future: asyncio.Future[object] = asyncio.get_running_loop().create_future()

    def ended(_: asyncio.Future[object]) -> None:
        error = None if future.cancelled() else future.exception()
        if error is not None and not hasattr(error, "status"):
            journal.refused(name, repr(error))

    future.add_done_callback(ended)
    try:
        call = client.core.request(
            ask.key,
            ask.body(name),
            future,
            wants_reply=ask.wants_reply,
            headers={headers.X_DEADLINE: deadline()} if ask.wants_reply else None,
            deadline=False,
        )
    except OsrdyneError as error:
        journal.refused(name, repr(error))
    else:
        journal.named(name, call.correlation_id)


async def main() -> None:
    """Send until the order to stop; end when standard input does."""
    who, path, pool = sys.argv[1:]
    journal, commands = Journal(Path(path)), Commands()
    client = await connected(os.environ[load.URI_VARIABLE], pool, journal)
    number = 0
    while not commands.ended.is_set():
        await asyncio.sleep(1 / load.RATE)
        number += 1
        ask = load.ask(who, number)
        if commands.allows(ask.key):
            send(client, journal, ask, f"{who}-{number}")


if __name__ == "__main__":
    asyncio.run(main())
    # Not closed in good order: that would delete the reply queue, in which the accountant looks for answers.
    os._exit(0)
