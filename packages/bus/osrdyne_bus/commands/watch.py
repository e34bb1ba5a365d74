"""`osrdyne bus watch`: ask the bus and its servers again and again, also across lost connections."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import UTC, datetime
from typing import Annotated

import typer

from osrdyne_bus.addresses import DYNAMIC, ROOT
from osrdyne_bus.commands import options
from osrdyne_bus.commands.asking import ask_bus, ask_server, bus_line, server_line
from osrdyne_bus.targets import Target
from osrdyne_runtime.console.output import failing_clearly, print_json, printable


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
    every: Annotated[float, typer.Option(min=0.1, help="Seconds between two rounds.")] = 2.0,
    rounds: Annotated[int | None, typer.Option(min=1, help="End after so many rounds. Default: at Ctrl-C.")] = None,
    json: options.Json = False,
) -> None:
    """Do what `ping` does, every few seconds until Ctrl-C. A peer that is away is waited for.

    The first connection has to succeed. With --json each round is one line.
    """
    peer = options.chosen(context, broker, broker_file)
    where = options.PeerOptions(peer, addressing, root, mechanisms, ca_file, certificate_file, key_file)
    asked = options.targets(topics, exchange, server)
    with suppress(KeyboardInterrupt):
        asyncio.run(_watch(where, asked, timeout, every, rounds, as_json=json))


async def _watch(
    where: options.PeerOptions, asked: list[Target], timeout: float, every: float, rounds: int | None, *, as_json: bool
) -> None:
    loop = asyncio.get_running_loop()
    async with where.opened("osrdyne bus watch", timeout) as bus:
        done = 0
        while True:
            began = loop.time()
            at = datetime.now(UTC).isoformat(timespec="milliseconds")
            found, *servers = await asyncio.gather(
                ask_bus(bus, timeout), *(ask_server(bus, target, timeout) for target in asked)
            )
            more = {"connections": bus.connections, "stalls": bus.stalls}
            if as_json:
                print_json({"time": at, **found, **more, "servers": servers}, indent=None)
            else:
                typer.echo(printable(f"{at} {bus_line(found)}"))
                for server in servers:
                    typer.echo(printable(f"{at} {server_line(server)}"))
            done += 1
            if done == rounds:
                return
            await asyncio.sleep(max(0.0, began + every - loop.time()))
