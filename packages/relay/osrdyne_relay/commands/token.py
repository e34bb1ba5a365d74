"""`osrdyne relay token`: a new token, and what the access file holds of it."""

from __future__ import annotations

import hashlib
import secrets
from typing import Annotated

import typer

from osrdyne_runtime.console.output import print_json


def command(*, json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False) -> None:
    """Make a token for a client: the first line is the client's secret, the second belongs in the access file."""
    token = secrets.token_urlsafe(32)
    hashed = hashlib.sha256(token.encode()).hexdigest()
    if json:
        print_json({"token": token, "token_sha256": hashed})
    else:
        typer.echo(f'{token}\ntoken_sha256 = "{hashed}"')
