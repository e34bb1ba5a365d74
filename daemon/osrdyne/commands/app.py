"""The `osrdyne` command: `daemon`, `call`, `status`, `lint`, `poison`, `replay`, each with `--json`.

Reads arguments and settings, prints for a person or as JSON, and turns every known error into one line that
says what is wrong, where, and what to do. Exit status: 0 done, 1 the answer is no, 2 it could not be asked.

Other packages add commands by entry points of the group `osrdyne.commands`: the name is that of the command, the object
a `typer.Typer`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from osrdyne_runtime.console import init
from osrdyne_runtime.console.imports import uncollected
from osrdyne_runtime.console.output import CANNOT, complain
from osrdyne_runtime.console.streams import guarded

_HELP = """Call keyed workers through RabbitMQ, and run and look at the daemon that starts them.

Exit status: 0 done, 1 the answer is no (an error reply, a daemon that is not ready, findings), 2 it could not be
asked. Every error is one line: what is wrong, where, and what to do. What to look at first: `osrdyne status`.
"""

_PLAIN: Any = {"add_completion": False, "rich_markup_mode": None}
#: In the order of the help. Each module is imported only when its command runs: importing what one command needs can
#: take as long as all the work of another.
_COMMANDS = ("daemon", "call", "status", "lint", "replay", "poison")
#: Entry points of this group are commands of other packages.
GROUP = "osrdyne.commands"


class _Commands(TyperGroup):
    def list_commands(self, ctx: Any) -> list[str]:
        return [*_COMMANDS, *sorted(_registered())]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        known = [cmd_name] if cmd_name in _COMMANDS else self.list_commands(ctx)
        # For an unknown name, load all commands, so that the error can suggest one.
        for name in [cmd_name] if cmd_name in known else known:
            if name not in self.commands:
                with uncollected():
                    self.add_command(_loaded(name), name)
        return super().get_command(ctx, cmd_name)


@cache
def _registered() -> dict[str, EntryPoint]:
    """Return the commands of other packages that are installed. None can take the name of one of ours."""
    return {one.name: one for one in entry_points(group=GROUP) if one.name not in _COMMANDS}


def _loaded(name: str) -> Any:
    if name not in _COMMANDS:
        return _of_other_package(_registered()[name])
    module = import_module(f"osrdyne.commands.{name}")
    return typer.main.get_command(module.app) if hasattr(module, "app") else _alone(name, module.command)


def _of_other_package(entry_point: EntryPoint) -> Any:
    """Load a command of another package. One that is broken is an error only when it is called."""
    try:
        return typer.main.get_command(entry_point.load())
    except Exception as error:  # noqa: BLE001 - it must not break the other commands
        why = f"{type(error).__name__}: {error}"

    def broken(_: Annotated[list[str] | None, typer.Argument(hidden=True)] = None) -> None:
        complain(f"command {entry_point.name!r} cannot be loaded from {entry_point.value}: {why}; mend its package")
        raise typer.Exit(CANNOT)

    broken.__doc__ = f"Cannot be loaded from {entry_point.value}."
    return _alone(entry_point.name, broken)


def _alone(name: str, command: Callable[..., None]) -> Any:
    app = typer.Typer(**_PLAIN, pretty_exceptions_enable=False)
    app.command(name)(command)
    return typer.main.get_command(app)


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
    init.go_on_in_child()
    with guarded("osrdyne"):
        app()
