"""`osrdyne bus ping`: whether the bus carries messages, and its servers answer."""

from __future__ import annotations

import asyncio
import time

import typer

from osrdyne_bus.addresses import DYNAMIC, ROOT
from osrdyne_bus.commands import options
from osrdyne_bus.commands.asking import ask_bus, ask_fanouts, ask_server, bus_line, server_line
from osrdyne_bus.targets import Target
from osrdyne_runtime.console.output import NO, failing_clearly, print_json, printable

#: What answers have where the connection took all the time.
LEAST_SECONDS = 0.01


@failing_clearly(options.STATUSES)
def command(
    context: typer.Context,
    topics: options.Topics = None,
    *,
    exchange: options.Exchange = "osrdyne",
    server: options.Server = None,
    broker_file: options.BrokerFile = None,
    broker: options.Broker = None,
    addressing: options.Addressing = DYNAMIC,
    root: options.Root = ROOT,
    mechanisms: options.Mechanisms = None,
    ca_file: options.CaFile = None,
    certificate_file: options.CertificateFile = None,
    key_file: options.KeyFile = None,
    timeout: options.Timeout = 5.0,
    json: options.Json = False,
) -> None:
    """Send a message by way of the peer to this program itself, and ask one server of each TOPIC what it does.

    A router is asked whether it delivers fanouts to all servers, too. Exit status 1: the peer can be reached, and the
    bus or a server did not answer, or fanouts do not reach all servers.
    """
    peer = options.chosen(context, broker, broker_file)
    where = options.PeerOptions(peer, addressing, root, mechanisms, ca_file, certificate_file, key_file)
    asked = options.targets(topics, exchange, server)
    if not asyncio.run(_ask(where, asked, timeout, as_json=json)):
        raise typer.Exit(NO)


async def _ask(where: options.PeerOptions, asked: list[Target], timeout: float, *, as_json: bool) -> bool:
    deadline = time.monotonic() + timeout
    async with where.opened("osrdyne bus ping", timeout) as bus:
        # At once: the time is for all of them.
        left = max(LEAST_SECONDS, round(deadline - time.monotonic(), 2))
        found, fanouts, *servers = await asyncio.gather(
            ask_bus(bus, left),
            ask_fanouts(bus, asked[0] if asked else Target("ping"), left),
            *(ask_server(bus, target, left) for target in asked),
        )
    if as_json:
        print_json({**found, "fanouts": fanouts, "servers": servers})
    else:
        for line in (bus_line(found), fanouts.get("error"), *map(server_line, servers)):
            if line is not None:
                typer.echo(printable(line))
    return not any("error" in answer for answer in (found, fanouts, *servers))
