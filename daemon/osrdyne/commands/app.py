"""The `osrdyne` command: `daemon`, `call`, `status`, `lint`, `poison`, `replay`, each with `--json`.

Reads arguments and settings, prints for a person or as JSON, and turns every known error into one line that
says what is wrong, where, and what to do. Exit status: 0 done, 1 the answer is no, 2 it could not be asked.
"""

from __future__ import annotations

from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

_HELP = """Call keyed workers through RabbitMQ, and run and look at the daemon that starts them.

Exit status: 0 done, 1 the answer is no (an error reply, a daemon that is not ready, findings), 2 it could not be
asked. Every error is one line: what is wrong, where, and what to do. What to look at first: `osrdyne status`.
"""

_PLAIN: Any = {"add_completion": False, "rich_markup_mode": None}
#: In the order of the help. Each module is imported only when its command runs: importing what one command needs can
#: take as long as all the work of another.
_COMMANDS = ("daemon", "call", "status", "lint", "replay", "poison")


class _Commands(TyperGroup):
    def list_commands(self, ctx: Any) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        # For an unknown name, load all commands, so that the error can suggest one.
        for name in (cmd_name,) if cmd_name in _COMMANDS else _COMMANDS:
            if name not in self.commands:
                self.add_command(_loaded(name), name)
        return super().get_command(ctx, cmd_name)


def _loaded(name: str) -> Any:
    module = import_module(f"osrdyne.commands.{name}")
    if hasattr(module, "app"):
        return typer.main.get_command(module.app)
    alone = typer.Typer(**_PLAIN, pretty_exceptions_enable=False)
    alone.command(name)(module.command)
    return typer.main.get_command(alone)


app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    **_PLAIN,
)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"osrdyne {version('osrdyne')}")
        raise typer.Exit


@app.callback(help=_HELP)
def osrdyne(
    _: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Take the options that belong to no command."""


def main() -> None:
    """Run the command line."""
    app()
