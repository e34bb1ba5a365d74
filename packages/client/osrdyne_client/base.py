"""What both clients share: the options, and a client's state."""

from __future__ import annotations

from typing import Literal

from osrdyne_amqp.address import Address
from osrdyne_calls.limits import MAX_BODY
from osrdyne_client.connection import CONNECT_SECONDS
from osrdyne_client.dispatcher import ClientOptions, Dispatcher


class BaseClient:
    """A client of one pool."""

    def __init__(
        self,
        uri: Address,
        pool: str,
        *,
        slots: int = 1024,
        timeout: float = 60.0,
        connect_timeout: float = CONNECT_SECONDS,
        confirm: bool = True,
        reply: Literal["queue", "direct"] = "queue",
        max_body: int = MAX_BODY,
        resend: bool = True,
        name: str | None = None,
    ) -> None:
        """Prepare a client of `pool` on the broker at `uri`; nothing is sent before it is opened.

        `uri`: the broker's address, or a function that returns it and is called at each connection, so that a new
        password needs no new client: `osrdyne_amqp.address.from_file(path)`. The user stays the same.
        `slots`: most calls in flight, 1 to 65,536; one more raises `NoFreeSlot`.
        `timeout`: seconds that a call waits unless it says otherwise; `math.inf` for no end.
        `connect_timeout`: seconds that `open` may take, and each later attempt to connect.
        `confirm`: the broker confirms every request. Without, a request can be lost silently when the connection
        breaks or a queue is full, and the call then times out; a cast returns as soon as it is written.
        `reply`: "queue" is a reply queue of this client, which outlives a lost connection; "direct" is RabbitMQ's
        direct reply-to, without a queue: calls in flight fail with `ReplyAddressLost` when the connection breaks.
        `max_body`: most bytes of a request; more raise `BodyTooLarge`.
        `resend`: a request that was not confirmed when the connection broke is sent again, so that a worker may see
        it twice; False fails it with `Unconfirmed` instead.
        `name`: what the broker shows for the connection.
        """
        options = ClientOptions(
            slots=slots,
            timeout=timeout,
            connect_timeout=connect_timeout,
            confirm=confirm,
            reply=reply,
            max_body=max_body,
            resend=resend,
            name=name or f"osrdyne client of {pool}",
        )
        self._dispatcher = Dispatcher(uri, pool, options)
        self._prepare()

    def _prepare(self) -> None:
        """Set further attributes of a client. Subclasses have no constructor: the options are listed once, above."""

    @property
    def is_connected(self) -> bool:
        """Whether requests leave at once; otherwise they wait for the connection."""
        return self._dispatcher.is_connected

    @property
    def slots_taken(self) -> int:
        """How many slots are taken, including those of calls that timed out and were not reclaimed yet."""
        return self._dispatcher.slots.taken

    @property
    def stale_replies(self) -> int:
        """How many replies came after their call was given up, and were dropped."""
        return self._dispatcher.slots.stale
