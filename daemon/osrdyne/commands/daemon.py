"""`osrdyne daemon`: run the daemon of one pool until SIGTERM or SIGINT."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Annotated

import typer

from osrdyne.base.credentials import ENVIRONMENT_PREFIX
from osrdyne_runtime import program
from osrdyne_runtime.console import log_format
from osrdyne_runtime.console.imports import uncollected
from osrdyne_runtime.console.output import one_line_errors

log = logging.getLogger(__name__)


def environment_names() -> list[str]:
    """Return the names of osrdyne's variables in the environment, for the log; never their values."""
    return sorted(name for name in os.environ if name.startswith(ENVIRONMENT_PREFIX))


@one_line_errors
def command(
    settings: Annotated[Path, typer.Option(help="The daemon's settings file (TOML).")],
    json: Annotated[bool, typer.Option("--json", help="Log as JSON, one object a line.")] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Only say whether the settings are right, with what the driver reads.")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Log what the AMQP library says, too.")] = False,
) -> None:
    """Run the daemon of one pool. It waits for the broker, and for the lock when another daemon leads.

    When the settings file changes it goes over to the changed settings, unless they are wrong.
    """
    with uncollected():
        from osrdyne.process import Process  # takes a moment, which the other commands need not wait for
        from osrdyne.settings.file import SettingsFile

    log_format.configure(as_json=json, verbose=verbose)
    file = SettingsFile(settings)
    process = Process(file)
    if check:
        file.settings.driver.check(file.settings.pool)
        typer.echo(f"{settings}: settings are right")
        return
    log.info("settings read", extra={"file": str(settings), "from_environment": environment_names()})
    program.run(process.run(), "osrdyne daemon")
