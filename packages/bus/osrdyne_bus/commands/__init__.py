"""`osrdyne bus`: look at a bus and its servers.

An entry point of the group `osrdyne.commands` makes `app` a command of `osrdyne`. Each command has a module: `ping`
asks servers once, and `watch` goes on asking. `asking` is what both do, and `options` where they connect to.
"""

from __future__ import annotations

from typing import Any

import typer

from osrdyne_bus.commands import ping, watch

_PLAIN: Any = {"add_completion": False, "rich_markup_mode": None, "pretty_exceptions_enable": False}

app = typer.Typer(
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="""Look at a bus over AMQP 1.0, and at its servers.

Exit status: 0 done; 1 a server or the bus did not answer; 2 it could not be asked.""",
    **_PLAIN,
)
app.command("ping")(ping.command)
app.command("watch")(watch.command)


@app.callback()
def bus() -> None:
    """Take the options that belong to no command."""
