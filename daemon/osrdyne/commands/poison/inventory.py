"""The poison inventory on the broker: looking at entries, sending them again, taking them out.

An entry leaves the queue only by an acknowledgement, after its action is done; all others are given back at the end of
the look, in their order. So a command that is killed leaves all entries in place, or at worst one that was sent again
already. A lock lets one command at a time work on a pool, because each holds every entry while it looks.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

from osrdyne.commands.poison.entry import Entry, Selection, read, replayed, unplayable
from osrdyne.errors import DaemonError
from osrdyne_amqp import Channel, Connection, Message, Properties, awake
from osrdyne_amqp.errors import (
    AccessRefused,
    BrokerError,
    BrokerTimeout,
    Locked,
    Nacked,
    NotFound,
    Returned,
    Unencodable,
)
from osrdyne_calls.closing import CLOSE_SECONDS
from osrdyne_protocol import events, headers
from osrdyne_protocol.names import PoolNames

#: Time between two tries for the lock.
_RETRY_SECONDS = 0.2
#: A look ends after the first time without a further entry; after the second if the broker should still have some.
_QUIET_SECONDS, _SILENCE_SECONDS = 0.2, 10.0
#: Most bytes of bodies that are held at once; further entries are handled in another round.
_MOST_BYTES = 64 * 1024 * 1024
#: Most entries of one look: the largest prefetch. Without one, RabbitMQ delivers 2,000 messages of a quorum queue.
_MOST_ENTRIES = 65_535
#: Code with which the broker closes a connection as it fails to deliver a message.
_CRASHED = 541
#: Longest wait for a connection, where the command was given no time, and for a confirm.
_CONNECT_SECONDS = 10.0
_CONFIRM_SECONDS = 30.0
#: For each of the two last steps of a command whose time is over: to look what was taken out, and to disconnect.
_LAST_SECONDS = CLOSE_SECONDS / 2


class Busy(DaemonError):
    """Another `osrdyne poison` command is at work on this pool; try again when it is done."""


class Incomplete(DaemonError):
    """The broker does not hand over all entries."""


class CannotHandOver(DaemonError):
    """The broker cannot hand over an entry."""


#: Acts on an entry; returns None when the entry may leave the inventory, else why it stays.
Act = Callable[[Entry, Message], Awaitable[str | None]]


@dataclass(frozen=True, slots=True)
class PoisonOutcome:
    """The outcome of one entry: None when it left the inventory, else why it is still there."""

    entry: Entry
    kept_because: str | None


@dataclass(slots=True)
class _Look:
    """One look at the whole queue: every entry is handed over once, and held by the broker until the look is over."""

    channel: Channel
    #: Selects the messages to keep here; called once for each entry, in their order.
    wanted: Callable[[Entry], bool]
    held: list[tuple[Entry, Message]] = field(default_factory=list)
    seen: int = 0
    #: A wanted entry was left for another look, because the held ones are large.
    left: bool = False
    _bytes: int = 0
    _more: asyncio.Event = field(default_factory=asyncio.Event)

    def on_message(self, message: Message) -> None:
        entry = read(message)
        self.seen += 1
        self._more.set()
        if not self.wanted(entry):
            return
        if self.held and self._bytes + message.size > _MOST_BYTES:
            self.left = True
            return
        self.held.append((entry, message))
        self._bytes += message.size

    async def at(self, queue: str) -> None:
        """Receive all entries. Raises Incomplete when they are fewer than the broker counts."""
        ready = (await self.channel.declare_queue(queue, passive=True)).ready
        consumer = await self.channel.consume(queue, self.on_message, on_cancel=self._more.set)
        ended = asyncio.ensure_future(self.channel.wait_closed())
        ended.add_done_callback(lambda _: self._more.set())
        while self.channel.is_open:
            self._more.clear()
            try:
                async with asyncio.timeout(_QUIET_SECONDS if self.seen >= ready else _SILENCE_SECONDS):
                    await self._more.wait()
            except TimeoutError:
                break
        if not self.channel.is_open:
            raise await ended
        ended.cancel()
        await self.channel.cancel(consumer)
        if self.seen < min(ready, _MOST_ENTRIES):
            raise Incomplete(
                f"the broker handed over {self.seen} of {ready} entries of {queue}; try again, and see whether "
                "something else consumes that queue"
            )

    async def settled(self, queue: str) -> None:
        """Return when every acknowledgement has taken effect. Raises BrokerError when one may not have.

        An acknowledgement has no answer, and a channel drops those that it still keeps when it closes
        (docs/reference/rabbitmq-facts.md#acknowledgements-that-are-dropped). Beginning a consumer is a command of
        the queue: with its answer all that was sent is applied, and the channel sends what it kept. Ending it is
        applied after that.
        """
        await self.channel.limit(1)
        consumer = await self.channel.consume(queue, _leave, on_cancel=_nothing)
        await self.channel.cancel(consumer)
        await self.channel.declare_queue(queue, passive=True)


class Inventory:
    """The inventory of one pool, for as long as this command holds its lock; made by `opened`."""

    def __init__(
        self, connection: Connection, names: PoolNames, queues: tuple[str, ...], publisher: Channel, who: str
    ) -> None:
        self._connection = connection
        self._names = names
        self._queues = queues
        self._publisher = publisher
        self._who = who

    async def entries(self) -> list[Entry]:
        """Return all entries, queue after queue and in their order; nothing changes."""
        found: list[Entry] = []

        def note(entry: Entry) -> bool:
            found.append(entry)
            return False

        for queue in self._queues:
            async with self._looking(queue, note):
                pass
        return found

    async def find(self, entry_id: str) -> tuple[Entry, Message] | None:
        """Return one entry with its message, None when there is none; nothing changes."""
        for queue in self._queues:
            async with self._looking(queue, lambda entry: entry.id == entry_id) as look:
                if look.held:
                    return look.held[0]
        return None

    async def take_out(self, selection: Selection, act: Act) -> list[PoisonOutcome]:
        """Do `act` for each selected entry, in their order, and remove it where that returns None."""
        return [taken for queue in self._queues for taken in await self._take_out(queue, selection, act)]

    async def _take_out(self, queue: str, selection: Selection, act: Act) -> list[PoisonOutcome]:
        outcomes: list[PoisonOutcome] = []
        done: set[str] = set()
        more = True
        while more:
            async with self._looking(queue, lambda entry: entry in selection and entry.id not in done) as look:
                try:
                    for entry, message in look.held:
                        why = await act(entry, message)
                        if why is None:
                            look.channel.ack(message.delivery_tag)
                        outcomes.append(PoisonOutcome(entry, why))
                        # Let the acknowledgement and heartbeats leave: an act may take long without waiting.
                        await asyncio.sleep(0)
                except BrokerTimeout:
                    raise  # it would not answer this check, either
                except BaseException as error:
                    # The earlier entries are done. The first error matters more than a failure of this check.
                    bound = _LAST_SECONDS if isinstance(error, asyncio.CancelledError) else None
                    with contextlib.suppress(BrokerError, TimeoutError):
                        async with asyncio.timeout(bound):
                            await look.settled(queue)
                    raise
                await look.settled(queue)
                more = look.left
            done.update(outcome.entry.id for outcome in outcomes)
        return outcomes

    async def send_again(self, entry: Entry, message: Message, *, keep_deadline: bool) -> str | None:
        """Publish an entry as a new request and wait for its confirm. Returns why it could not be, else None."""
        why = unplayable(entry, message)
        if why is not None or entry.key is None:
            return why
        properties = replayed(message, keep_deadline=keep_deadline)
        try:
            confirm = self._publisher.publish(
                self._names.request_exchange,
                entry.key,
                message.body,
                properties,
                mandatory=True,
                publish_id=secrets.token_hex(8),
            )
            await awake.result_of(confirm, _CONFIRM_SECONDS)
        except Returned:
            return "nothing takes requests: the pool's topology is not applied"
        except (Nacked, Unencodable) as error:
            return str(error)
        except awake.NotInTime:
            reason = self._connection.blocked_reason
            blocked = f" (it has blocked this connection: {reason})" if reason else ""
            raise BrokerTimeout(f"no publisher confirm within {_CONFIRM_SECONDS:.0f} s{blocked}") from None
        except BrokerError as error:
            if not self._connection.is_open:
                raise
            # A refusal of this entry closed the channel: go on with the others on a new one.
            self._publisher = await self._connection.channel(confirm=True)
            return str(error)
        return None

    def tell(self, event: str, entry: Entry) -> None:
        """Record what was done on the activity exchange, unconfirmed; the audit file is the record that counts."""
        given = events.headers(
            event, now_ms=events.wall_ms(), worker_id=self._who, request_id=entry.correlation_id, outcome=entry.reason
        )
        given[headers.X_POISON_ID] = entry.id
        self._publisher.send(self._names.activity_exchange, entry.key or "", b"", Properties(headers=given))

    @contextlib.asynccontextmanager
    async def _looking(self, queue: str, wanted: Callable[[Entry], bool]) -> AsyncIterator[_Look]:
        look = _Look(await self._connection.channel(prefetch=_MOST_ENTRIES), wanted)
        await look.at(queue)
        yield look
        # After an error, the end of the connection gives the entries back.
        await look.channel.close()


async def connected(uri: str, names: PoolNames, timeout: float | None = None) -> Connection:
    """Connect within `timeout` seconds, or 10. Raises BrokerError."""
    return await Connection.open(
        uri, name=f"osrdyne poison of {names.pool}", timeout=_CONNECT_SECONDS if timeout is None else timeout
    )


@contextlib.asynccontextmanager
async def opened(connection: Connection, names: PoolNames, *, who: str, patience: float) -> AsyncIterator[Inventory]:
    """Take the lock, waiting `patience` seconds for another command, and close the connection in the end.

    Raises Busy, BrokerError.
    """
    closing = CLOSE_SECONDS
    try:
        await _lock(connection, names, patience)
        yield Inventory(
            connection, names, await _queues(connection, names), await connection.channel(confirm=True), who
        )
    except NotFound as error:
        raise DaemonError(f"{error}; is this the pool's name and virtual host, and is its topology applied?") from error
    except BrokerError as error:
        if error.code != _CRASHED:
            raise
        raise CannotHandOver(
            f"the broker closes the connection as it hands over the entries of {names.poison_queue} or "
            f"{names.unanswered_queue}: one has what AMQP 0-9-1 cannot carry. Have an administrator take it out with a "
            "client of AMQP 1.0"
        ) from error
    except asyncio.CancelledError:
        closing = _LAST_SECONDS
        raise
    finally:
        await connection.close(closing)


def _leave(_: Message) -> None:
    """Leave an entry alone; it goes back at the end of the look."""


def _nothing() -> None:
    """Ignore a cancelled consumer: the next call raises an error for a queue that is gone."""


async def _queues(connection: Connection, names: PoolNames) -> tuple[str, ...]:
    """Return the queues of the inventory; a pool of an earlier topology has one."""
    channel = await connection.channel()
    try:
        await channel.declare_queue(names.unanswered_queue, passive=True)
    except (NotFound, AccessRefused):
        return (names.poison_queue,)
    await channel.close()
    return (names.poison_queue, names.unanswered_queue)


async def _lock(connection: Connection, names: PoolNames, patience: float) -> None:
    waits = max(1, round(patience / _RETRY_SECONDS))
    for number in range(waits):
        channel = await connection.channel()
        try:
            await channel.declare_queue(names.poison_lock_queue, durable=False, exclusive=True)
        except Locked:
            if number + 1 < waits:
                await asyncio.sleep(_RETRY_SECONDS)
        else:
            return
    raise Busy
