"""`osrdyne relay serve`: a node of the relay over HTTPS."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Any

import typer

from osrdyne_pool import settings_file
from osrdyne_protocol.errors import SettingsError
from osrdyne_relay.settings import RelaySettings
from osrdyne_runtime import program
from osrdyne_runtime.console import log_format
from osrdyne_runtime.console.output import one_line_errors


@one_line_errors
def command(
    *,
    settings: Annotated[
        Path,
        typer.Option(envvar="OSRDYNE_RELAY_SETTINGS", metavar="FILE", help="Settings file, TOML with a table [relay]."),
    ],
    host: Annotated[
        str | None, typer.Option(help="Address to listen on, instead of the setting's; 127.0.0.1 without both.")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(help="Port to listen on, instead of the setting's; 0 lets the system choose, and the log has it."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Log one object a line.")] = False,
) -> None:
    """Serve a node: workers poll here, and programs call. Ends at SIGTERM or SIGINT.

    Who may do what is in the access file that the settings name. Changes of it, and of the certificate, count without a
    restart.
    """
    from osrdyne_relay.http import serve

    parsed = read(settings, host, port)
    log_format.configure(as_json=json)

    async def until_signal() -> None:
        stop = asyncio.Event()
        program.on_stop_signal(stop.set)
        await serve(parsed, stop)

    program.run(until_signal(), "osrdyne relay serve")


def read(file: Path, host: str | None, port: int | None) -> RelaySettings:
    """Return the settings of a node, with what the command line has instead. Raises SettingsError."""
    table = settings_file.read(file).get("relay")
    if not isinstance(table, dict):
        raise SettingsError(str(file), "has no table [relay]")
    given: dict[str, Any] = {name: value for name, value in (("host", host), ("port", port)) if value is not None}
    own = table.get("serve")
    if isinstance(own, dict):
        table = {**table, "serve": {**own, **given}}
    return RelaySettings.from_mapping(table)
