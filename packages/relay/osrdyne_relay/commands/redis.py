"""`osrdyne relay redis`: what a Redis needs that a relay has for itself."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from osrdyne_relay.redis import server as redis_server
from osrdyne_relay.settings import RelaySettings
from osrdyne_runtime.console.output import one_line_errors, print_json
from osrdyne_runtime.settings import secrets


@one_line_errors
def command(
    *,
    password_file: Annotated[
        Path,
        typer.Option(metavar="FILE", help="File with the password of the nodes' user; /dev/stdin for standard input."),
    ],
    prefix: Annotated[
        str, typer.Option(help="The setting `prefix` of the relay, which is also the user's name.")
    ] = RelaySettings.model_fields["prefix"].default,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document: `settings` and `acl`.")] = False,
) -> None:
    """Print lines for redis.conf, and the ACL file that lets in the nodes' user and no other.

    The ACL file has the SHA-256 of the password, and not the password.
    """
    RelaySettings.from_mapping({"redis": {"url": "redis://localhost"}, "prefix": prefix})
    settings = redis_server.settings()
    acl = redis_server.acl(prefix, secrets.in_file(password_file, "--password-file"))
    if json:
        print_json({"settings": settings, "acl": acl})
    else:
        typer.echo(f"# redis.conf\n{settings}\n# the file that the setting `aclfile` names\n{acl}", nl=False)
