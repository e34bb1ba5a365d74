"""`osrdyne poison`: look at the requests that could not be served, send them again, or take them out for good.

Reads and empties the queues `{pool}-poison` and `{pool}-unanswered` with the broker user of the role `operator`, which
has no other rights. Each removal is first written to the audit file. `text` prints entries.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar
from urllib.parse import urlsplit

import typer

from osrdyne.commands.poison import audit_file as audits
from osrdyne.commands.poison import text
from osrdyne.commands.poison.entry import Entry, Selection
from osrdyne.commands.poison.inventory import Inventory, PoisonOutcome, connected, opened
from osrdyne.drivers.subprocess.settings import SubprocessSettings
from osrdyne.settings.daemon import DaemonSettings, load
from osrdyne_amqp import Message
from osrdyne_protocol import events
from osrdyne_protocol.names import PoolNames
from osrdyne_runtime.console import broker_address, log_format
from osrdyne_runtime.console.output import NO, CannotAsk, complain, one_line_errors, print_json, seconds_of

T = TypeVar("T")

#: Longest wait for another command that works on the same pool.
_LOCK_WAIT_SECONDS = 10.0
#: Directory of the audit file when no settings name the daemon's state directory.
_STATE_DIRECTORY = Path("/var/lib/osrdyne")

Pool = Annotated[str | None, typer.Option("--pool", envvar="OSRDYNE_OPERATOR_POOL", help="Name of the pool.")]
Settings = Annotated[
    Path | None, typer.Option("--settings", help="The daemon's settings file, for the pool and where audits go.")
]
BrokerFile = Annotated[
    Path | None,
    typer.Option(
        "--broker-file",
        envvar="OSRDYNE_OPERATOR_URI_FILE",
        help="File that holds the broker's address with the user of the role operator; best choice.",
    ),
]
Broker = Annotated[
    str | None,
    typer.Option(
        "--broker",
        envvar="OSRDYNE_OPERATOR_URI",
        metavar="URI",
        help="That address itself. On the command line its password can be seen in the list of processes.",
    ),
]
Ids = Annotated[list[str] | None, typer.Argument(metavar="ID...", help="Entries, as `list` names them.")]
Keys = Annotated[list[str] | None, typer.Option("--key", help="All entries of this key; may be repeated.")]
All = Annotated[bool, typer.Option("--all", help="All entries there are.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Audit = Annotated[Path | None, typer.Option("--audit", help="File that gets a line for each entry that is removed.")]
Timeout = Annotated[
    str | None,
    typer.Option(
        "--timeout",
        help="How long the work on the broker may take, the connection included: seconds (90) or ISO 8601 (PT1M30S). "
        "Default: no end, but each answer of the broker has one.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document, also for an error.")]


@dataclass(frozen=True, slots=True)
class _Place:
    """Which inventory, by which address, where its audit file is by default, and how to print."""

    names: PoolNames
    uri: str
    audit: Path
    #: Seconds for each work on the broker; None for no end.
    timeout: float | None
    as_json: bool


def _on_inventory(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that name the inventory, after its own, and call it with the place they name."""

    def run(
        context: typer.Context,
        *,
        pool: Pool = None,
        settings: Settings = None,
        broker_file: BrokerFile = None,
        broker: Broker = None,
        timeout: Timeout = None,
        json: Json = False,
        **own: Any,
    ) -> None:
        seconds = None if timeout is None else seconds_of(timeout, "--timeout")
        command(_place(context, pool, settings, broker, broker_file, seconds, as_json=json), **own)

    _, *own_options = inspect.signature(command, eval_str=True).parameters.values()
    given, *shared, _ = inspect.signature(run, eval_str=True).parameters.values()
    known = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in (given, *own_options, *shared)]
    # Typer reads name, help and options of a command from these.
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in known}
    run.__dict__["__signature__"] = inspect.Signature(known)
    return run


@one_line_errors
@_on_inventory
def list_(
    place: _Place,
    key: Keys = None,
) -> None:
    """List the entries: first those that workers failed on, then the others, each oldest first.

    Nothing is consumed, and their order stays.
    """
    entries = [entry for entry in _run(place, Inventory.entries) if not key or entry.key in key]
    if place.as_json:
        print_json({"entries": [text.document(entry) for entry in entries]})
    else:
        text.print_table(entries)


@one_line_errors
@_on_inventory
def show(
    place: _Place,
    entry_id: Annotated[str, typer.Argument(metavar="ID", help="An entry, as `list` names it.")],
) -> None:
    """Show one entry: why it is kept, its deaths, the workers that had it, its headers and its body."""
    found = _run(place, lambda inventory: inventory.find(entry_id))
    if found is None:
        problem = f"no entry {entry_id} in the inventory of {place.names.pool}: replayed or buried already?"
        if place.as_json:
            print_json({"error": problem})
        complain(problem)
        raise typer.Exit(NO)
    if place.as_json:
        print_json(text.whole_document(*found))
    else:
        text.print_whole(*found)


@one_line_errors
@_on_inventory
def replay(
    place: _Place,
    ids: Ids = None,
    key: Keys = None,
    everything: All = False,
    yes: Yes = False,
    keep_deadline: Annotated[
        bool, typer.Option("--keep-deadline", help="Leave the request's deadline on: past it, it is only answered.")
    ] = False,
    audit: Audit = None,
) -> None:
    """Send entries to their workers again, as new requests, and remove them.

    Each is removed once the broker has confirmed its request. A command that is killed in between leaves at worst one
    entry that was sent already. A worker group that does not run is started as for any request.
    """

    async def send(inventory: Inventory, entry: Entry, message: Message) -> str | None:
        return await inventory.send_again(entry, message, keep_deadline=keep_deadline)

    _take_out(place, _selection(ids, key, everything), events.REPLAYED, send, yes=yes, audit=audit)


@one_line_errors
@_on_inventory
def bury(
    place: _Place,
    ids: Ids = None,
    key: Keys = None,
    everything: All = False,
    yes: Yes = False,
    audit: Audit = None,
) -> None:
    """Remove entries for good. A line in the audit file says who did it, when, and what it was; the body is gone."""

    async def nothing(_: Inventory, __: Entry, ___: Message) -> str | None:
        return None

    _take_out(place, _selection(ids, key, everything), events.BURIED, nothing, yes=yes, audit=audit)


def _take_out(
    place: _Place,
    selection: Selection,
    event: str,
    act: Callable[[Inventory, Entry, Message], Awaitable[str | None]],
    *,
    yes: bool,
    audit: Path | None,
) -> None:
    """Let a person confirm entries that are not named one by one, then act on exactly these."""
    if not yes and not selection.ids:
        found = [entry for entry in _run(place, Inventory.entries) if entry in selection]
        if found and not typer.confirm(f"{len(found)} entries of {place.names.pool} will be {event}. Go on?", err=True):
            raise typer.Exit(NO)
        selection = Selection.of([entry.id for entry in found])
    with audits.opened(audit or place.audit) as write:

        async def work(inventory: Inventory) -> list[PoisonOutcome]:
            async def each(entry: Entry, message: Message) -> str | None:
                why = await act(inventory, entry, message)
                if why is None:
                    write(event, place.names.pool, entry)
                    inventory.tell(event, entry)
                return why

            return await inventory.take_out(selection, each)

        outcomes = _run(place, work)
    missing = sorted(selection.ids - {outcome.entry.id for outcome in outcomes})
    text.print_outcomes(outcomes, missing, event, as_json=place.as_json)
    if missing or any(outcome.kept_because is not None for outcome in outcomes):
        raise typer.Exit(NO)


def _run(place: _Place, work: Callable[[Inventory], Awaitable[T]]) -> T:
    async def run() -> T:
        ends = None if place.timeout is None else asyncio.get_running_loop().time() + place.timeout
        # A connection says itself that its time is over, and where.
        connection = await connected(place.uri, place.names, place.timeout)
        at = opened(connection, place.names, who=audits.who(), patience=_LOCK_WAIT_SECONDS)
        alarm = None
        try:
            async with asyncio.timeout_at(ends) as bound, at as inventory:
                try:
                    return await work(inventory)
                finally:
                    alarm = connection.blocked_reason
        except TimeoutError:
            if not bound.expired():
                raise
            where = urlsplit(place.uri).netloc.rpartition("@")[2]
            said = f"the broker at {where} did not do it all within {place.timeout:g} s (--timeout)"
            if alarm is not None:
                why = f"it takes no messages in its alarm ({alarm}; see `osrdyne status`), and may do the rest after it"
                raise CannotAsk(f"{said}: {why}; look then with `osrdyne poison list`") from None
            raise CannotAsk(f"{said}; what is not done stays in the inventory: try again") from None

    return asyncio.run(run())


def _selection(ids: list[str] | None, keys: list[str] | None, everything: bool) -> Selection:
    if sum(map(bool, (ids, keys, everything))) != 1:
        raise CannotAsk("name entries by their ids, or by --key, or take --all: one of these")
    return Selection(frozenset(ids or ()), frozenset(keys or ()), everything)


def _place(
    context: typer.Context,
    pool: str | None,
    settings: Path | None,
    broker: str | None,
    broker_file: Path | None,
    timeout: float | None,
    *,
    as_json: bool,
) -> _Place:
    log_format.configure(as_json=as_json)
    logging.getLogger().setLevel(logging.ERROR)
    chosen = load(settings) if settings is not None else None
    name = pool or (chosen.pool.name if chosen is not None else None)
    if name is None:
        raise CannotAsk("no pool is named; give --pool NAME, or the daemon's settings file by --settings")
    names = PoolNames(name)
    uri = broker_address.chosen(context, broker, broker_file, variable="OSRDYNE_OPERATOR_URI")
    return _Place(names, uri, _state_directory(chosen) / f"{name}-poison-audit.jsonl", timeout, as_json)


def _state_directory(chosen: DaemonSettings | None) -> Path:
    if chosen is not None and isinstance(chosen.driver, SubprocessSettings):
        return chosen.driver.state_directory
    return _STATE_DIRECTORY
