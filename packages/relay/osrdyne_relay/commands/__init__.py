"""`osrdyne relay`: run a node, and make what it and its Redis need.

An entry point of the group `osrdyne.commands` makes `app` a command of `osrdyne`. Each command has a module: `serve`
runs a node, `token` makes a token, `check` looks at the files of a node, and `redis` prints what its Redis needs.
"""

from __future__ import annotations

from typing import Any

import typer

from osrdyne_relay.commands import check, redis, serve, token

_PLAIN: Any = {"add_completion": False, "rich_markup_mode": None, "pretty_exceptions_enable": False}

app = typer.Typer(
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="""Run a node of the relay, to which workers that can only poll and their callers connect over HTTPS.

Exit status: 0 done; 2 the command could not do its work.""",
    **_PLAIN,
)
app.command("serve")(serve.command)
app.command("token")(token.command)
app.command("check")(check.command)
app.command("redis")(redis.command)


@app.callback()
def relay() -> None:
    """Take the options that belong to no command."""
