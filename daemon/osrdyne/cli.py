"""The `osrdyne` command: `daemon`, `call`, `status`, `lint`, `poison`, each with `--json`.

Reads arguments and settings, prints for a person or as JSON, and turns every known error into one line that
says what is wrong, where, and what to do. Exit status: 0 done, 1 the answer is no, 2 it could not be asked.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated

import typer

from osrdyne.commands import call, daemon, lint, poison, status

_HELP = """Call keyed workers through RabbitMQ, and run and look at the daemon that starts them.

Exit status: 0 done, 1 the answer is no (an error reply, a daemon that is not ready, findings), 2 it could not be
asked. Every error is one line: what is wrong, where, and what to do. What to look at first: `osrdyne status`.
"""

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"osrdyne {version('osrdyne')}")
        raise typer.Exit


@app.callback(help=_HELP)
def osrdyne(
    _: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Take the options that belong to no command."""


app.command("daemon")(daemon.command)
app.command("call")(call.command)
app.command("status")(status.command)
app.command("lint")(lint.command)
app.add_typer(poison.app, name="poison")


def main() -> None:
    """Run the command line."""
    app()


if __name__ == "__main__":
    main()
