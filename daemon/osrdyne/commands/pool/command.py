"""`osrdyne pool diff | apply | remove`: the objects that a pool has on a broker, without Pulumi or Ansible.

Reads the settings file for what is declared, and the broker's management API for what is there.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Any

import typer

from osrdyne.commands.pool import applying, place, removing
from osrdyne.commands.pool.applying import Change
from osrdyne.commands.pool.users import UserFiles
from osrdyne.settings.daemon import load
from osrdyne_protocol.errors import OsrdyneError
from osrdyne_runtime.console.output import NO, PartlyDone, one_line_errors, print_json, printable

Settings = Annotated[Path, typer.Option(help="The daemon's settings file; its [pool] says what is declared.")]
BrokerFile = Annotated[
    Path | None,
    typer.Option(
        help="File with the AMQP address of the user who does this. Default: the daemon's own addresses in the "
        "settings, else the variable OSRDYNE_BROKER."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
_USERS = "Also users, permissions and limits, which takes an administrator; the directory keeps the users' addresses."
UserDirectory = Annotated[Path | None, typer.Option("--users", metavar="DIRECTORY", help=_USERS)]
NewPasswords = Annotated[
    bool, typer.Option("--new-passwords", help="Also where users are there, and the directory has none of them.")
]


@one_line_errors
def diff(
    settings: Settings,
    broker_file: BrokerFile = None,
    users_in: UserDirectory = None,
    new_passwords: NewPasswords = False,
    json: Json = False,
) -> None:
    """Show what `osrdyne pool apply` would change, value for value, and change nothing.

    Exit status: 0 the broker has the pool as declared; 1 it has not; 2 it could not be asked.
    """
    chosen = load(settings)
    declared = applying.declared_by(chosen.pool, with_users=users_in is not None)
    there = place.chosen(chosen.broker, broker_file)
    where = _where(there, json=json)
    files = None if users_in is None else UserFiles.of(declared, users_in, there)
    api = there.api(chosen.broker.timeout)
    found = asyncio.run(applying.differences(api, declared, files, new_passwords=new_passwords))
    if json:
        print_json({**where, "changes": [_plain(change) for change in found]})
    else:
        for change in found:
            _show(change, "cannot change" if change.refused else "would change", "would make")
        if not found:
            typer.echo("the broker has the pool as declared")
    if found:
        raise typer.Exit(NO)


@one_line_errors
def apply(
    settings: Settings,
    broker_file: BrokerFile = None,
    users_in: UserDirectory = None,
    new_passwords: NewPasswords = False,
    json: Json = False,
) -> None:
    """Make the broker have the pool as declared. What it has already does not change, and nothing is deleted.

    A broker cannot change type and arguments of a queue or exchange: then the command changes nothing.
    """
    chosen = load(settings)
    declared = applying.declared_by(chosen.pool, with_users=users_in is not None)
    there = place.chosen(chosen.broker, broker_file)
    where = _where(there, json=json)
    files = None if users_in is None else UserFiles.of(declared, users_in, there)
    api = there.api(chosen.broker.timeout)
    made: list[Change] = []

    def done(change: Change) -> None:
        made.append(change)
        if not json:
            show_done(change)

    try:
        asyncio.run(applying.apply(api, declared, there, files, done, new_passwords=new_passwords))
    except OsrdyneError as error:
        raise PartlyDone(error, {**where, "changes": [_plain(change) for change in made]}) from error
    if json:
        print_json({**where, "changes": [_plain(change) for change in made]})
    elif not made:
        typer.echo("nothing to do: the broker has the pool as declared")


@one_line_errors
def remove(
    settings: Settings,
    broker_file: BrokerFile = None,
    with_users: Annotated[
        bool, typer.Option("--users", help="Also users, permissions and limits; takes an administrator.")
    ] = False,
    with_messages: Annotated[
        bool, typer.Option("--with-messages", help="Also where queues hold messages, which are lost.")
    ] = False,
    json: Json = False,
) -> None:
    """Delete what the pool has on the broker, its record of events included.

    It refuses, and deletes nothing, while a program of the pool consumes, or where a queue holds messages.
    """
    chosen = load(settings)
    declared = applying.declared_by(chosen.pool, with_users=with_users)
    there = place.chosen(chosen.broker, broker_file)
    where = _where(there, json=json)
    api = there.api(chosen.broker.timeout)
    removed: list[str] = []

    def done(what: str) -> None:
        removed.append(what)
        if not json:
            typer.echo(f"removed {printable(what)}")

    interval = chosen.broker.statistics_interval
    try:
        asyncio.run(removing.remove(api, declared, with_messages=with_messages, interval=interval, done=done))
    except OsrdyneError as error:
        raise PartlyDone(error, {**where, "removed": removed}) from error
    if json:
        print_json({**where, "removed": removed})
    elif not removed:
        typer.echo("nothing to do: the broker has nothing of the pool")


def _where(there: place.BrokerPlace, *, json: bool) -> dict[str, str]:
    """Say whose objects these are; return the same for a document."""
    if not json:
        typer.echo(printable(there))
    return {"broker": there.host, "vhost": there.vhost}


def show_done(change: Change) -> None:
    """Print a change that was made."""
    _show(change, "changed", "made")


def silent(_: Change) -> None:
    """Print nothing: a document follows."""


def _show(change: Change, changed: str, made: str) -> None:
    typer.echo(f"{made if change.missing else changed} {printable(change)}")
    if not change.missing:
        for value in change.values:
            typer.echo(f"  {printable(value)}")


def _plain(change: Change) -> dict[str, Any]:
    return {
        "object": str(change),
        "action": "make" if change.missing else "refuse" if change.refused else "change",
        "values": {value.path: {"is": value.found, "declared": value.declared} for value in change.values},
    }
