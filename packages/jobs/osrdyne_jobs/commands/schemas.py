"""`osrdyne jobs schemas`: the types of jobs that a program declares."""

from __future__ import annotations

import json as as_json

import typer

from osrdyne_jobs import documents
from osrdyne_jobs.commands import text, types
from osrdyne_jobs.commands.options import Json, Types, one_line_errors
from osrdyne_runtime.console.output import print_json


@one_line_errors
def command(*, types_at: Types = None, json: Json = False) -> None:
    """Show the types of jobs: name, coalescing, attempts, and the JSON schema of the payload. Asks no database."""
    found = [documents.of_type(one) for one in types.load(types_at)]
    if json:
        print_json({"types": found})
        return
    for one in found:
        for name, value in one.items():
            text.line(name.replace("_", " "), as_json.dumps(value) if name == "payload" else value)
    if not found:
        typer.echo("no types")
