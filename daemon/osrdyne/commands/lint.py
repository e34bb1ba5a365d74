"""`osrdyne lint`: check a pool's topology, as it is declared and as a broker has it.

Reads the settings file for what is declared, and with `--live` or `--management` the broker's management API for what
is there. Changes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from osrdyne.base.credentials import secret
from osrdyne.broker.management_api import ManagementApi
from osrdyne.commands import lost_queues
from osrdyne.commands.status_table import console
from osrdyne.settings.daemon import BrokerSettings, DaemonSettings, load
from osrdyne_amqp.address import virtual_host
from osrdyne_pool.broker import listeners
from osrdyne_pool.drift import concerning, drift, request_queues
from osrdyne_pool.lint import Finding, lint
from osrdyne_pool.topology import Topology, Users, topology
from osrdyne_protocol.errors import SettingsError
from osrdyne_protocol.names import PoolNames
from osrdyne_runtime.console.output import NO, CannotAsk, one_line_errors, print_json
from osrdyne_runtime.settings import secrets


@one_line_errors
def command(
    settings: Annotated[Path, typer.Option(help="The daemon's settings file; its [pool] says what is declared.")],
    live: Annotated[
        bool, typer.Option("--live", help="Also compare with the broker, as the daemon's own user.")
    ] = False,
    management: Annotated[
        Path | None,
        typer.Option(help="Compare as --live does, but as another user: a file with http://user:password@host:15672."),
    ] = None,
    vhost: Annotated[
        str | None, typer.Option(help="Virtual host of the pool. Default: that of the daemon's broker address.")
    ] = None,
    users: Annotated[
        bool,
        typer.Option("--users", help="Also compare users and permissions. Needs --management with an administrator."),
    ] = False,
    user: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ROLE=NAME", help="Name of a role's broker user, where it is not the usual one; repeatable."
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the findings as one JSON document.")] = False,
) -> None:
    """Find mistakes that a broker accepts silently and that lose messages later.

    Without options it checks what the settings declare. With --live or --management it compares that with exchanges,
    queues, bindings and policies of the broker. It also says which policy takes effect, which queues the broker lost,
    and which queues of the daemon have other consumers, too. With --users it compares users and permissions, and says
    whether guest has the password guest, and who can send as another user.
    """
    if users and management is None:
        raise CannotAsk("--users needs an administrator: name a file with the address of one by --management")
    chosen = load(settings)
    expected = topology(chosen.pool, _users(Users.of(chosen.pool.name, chosen.pool.instance), user or []))
    findings = lint(expected)
    if live or management is not None:
        api = ManagementApi(
            _management(chosen.broker, management), vhost or _vhost(chosen), timeout=chosen.broker.timeout
        )
        findings += asyncio.run(_judge_live(api, expected, with_users=users))
    findings = list(dict.fromkeys(findings))
    _show(findings, as_json=json)
    if findings:
        raise typer.Exit(NO)


async def _judge_live(api: ManagementApi, expected: Topology, *, with_users: bool) -> list[Finding]:
    found = await api.topology(with_users=with_users)
    lost = await lost_queues.findings(api, expected, found)
    # A stream that the broker lost is not reported as missing, too: applying the topology does not bring it back.
    explained = {finding.object for finding in lost}
    judged = judge(expected, found, with_users=with_users)
    shared = await _shared(api, PoolNames(expected.pool))
    return [
        *(finding for finding in judged if finding.rule != "missing" or finding.object not in explained),
        *lost,
        *shared,
    ]


async def _shared(api: ManagementApi, names: PoolNames) -> list[Finding]:
    """Return a finding for each queue of the daemon that other connections consume, too."""
    queues = (names.orphan_queue, names.dead_letter_queue)
    problems = {name: listeners.problem(await api.listeners(name)) for name in queues}
    return [Finding("other-consumers", f"queue {name}", problem) for name, problem in problems.items() if problem]


def judge(expected: Topology, found: Topology, *, with_users: bool) -> list[Finding]:
    """Return what is wrong with a live broker as far as it concerns a pool. Pure."""
    dynamic = [request_queue.name for request_queue in request_queues(expected.pool, found)]
    return [*drift(expected, found, with_users=with_users), *lint(concerning(expected, found), dynamic)]


def _management(broker: BrokerSettings, file: Path | None) -> str:
    if file is None:
        return secret(broker.management_uri, broker.management_uri_file, "broker.management_uri")
    return secrets.in_file(file, "--management")


def _vhost(settings: DaemonSettings) -> str:
    try:
        uri = secret(settings.broker.amqp_uri, settings.broker.amqp_uri_file, "broker.amqp_uri")
    except SettingsError as error:
        raise CannotAsk(f"the virtual host is not known ({error}); name it with --vhost") from None
    return virtual_host(uri)


def _users(names: Users, given: Iterable[str]) -> Users:
    roles = [field.name for field in fields(Users)]
    for option in given:
        role, _, name = option.partition("=")
        if role not in roles or not name:
            raise CannotAsk(f"--user {option!r}: give ROLE=NAME, with a role of {', '.join(roles)}")
        names = replace(names, **{role: name})
    return names


def _show(findings: list[Finding], *, as_json: bool) -> None:
    if as_json:
        print_json({"findings": [asdict(finding) for finding in findings]})
        return
    if not findings:
        typer.echo("nothing found")
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("rule", "object", "problem"):
        table.add_column(name, overflow="fold")
    for finding in findings:
        table.add_row(Text(finding.rule), Text(finding.object), Text(finding.problem))
    console().print(table)
