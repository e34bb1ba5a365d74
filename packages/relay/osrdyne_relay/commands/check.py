"""`osrdyne relay check`: whether a node could use its files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from osrdyne_relay.commands.serve import read
from osrdyne_runtime.console.output import CannotAsk, one_line_errors, print_json


@one_line_errors
def command(
    *,
    settings: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Settings file, TOML with a table [relay].")
    ] = None,
    access_file: Annotated[Path | None, typer.Option(metavar="FILE", help="Access file.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Read a settings file or an access file as a node does, and start nothing."""
    if settings is None and access_file is None:
        raise CannotAsk("there is nothing to check: give --settings FILE or --access-file FILE")
    if settings is not None:
        read(settings, None, None)
    if access_file is not None:
        from osrdyne_relay.http.access import Access

        Access.read(access_file)
    if json:
        print_json({"right": True})
    else:
        typer.echo("the files are right")
