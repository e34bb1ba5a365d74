"""Commands that are imported only when they run: importing what one needs can take as long as all the work of another.

`Command` and `group` describe them. `LazyGroup` serves `osrdyne` itself and each group within.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from typing import Annotated, Any, TypeAlias

import typer
from typer.core import TyperGroup

from osrdyne_runtime.console.imports import uncollected
from osrdyne_runtime.console.output import CANNOT, USAGE, complain

#: The class of all errors about a command line. Typer has it under no name of its own in all of its versions.
_UsageError: Any = typer.BadParameter.__mro__[1]
_PLAIN: Any = {"add_completion": False, "rich_markup_mode": None, "pretty_exceptions_enable": False}


@dataclass(frozen=True, slots=True)
class Command:
    """Where a command is, as MODULE:FUNCTION, and the line about it in the help of its group."""

    where: str
    help: str


#: A command, a group (a `typer.Typer`), or where a package says which of these it has.
Entry: TypeAlias = Command | typer.Typer | EntryPoint


def group(text: str, commands: Mapping[str, Entry]) -> typer.Typer:
    """Return a group of commands, which its help lists in this order; `text` is the rest of its help."""
    made = typer.Typer(
        cls=type("Commands", (LazyGroup,), {"table": commands}),
        help=text,
        no_args_is_help=True,
        context_settings={"help_option_names": ["-h", "--help"]},
        **_PLAIN,
    )
    made.callback()(_no_options)
    return made


class LazyGroup(TyperGroup):
    """Commands that are loaded when they are run. The help loads none, and one that is broken costs only itself.

    Each error about the command line, of whatever command within, ends the program with `USAGE`.
    """

    table: Mapping[str, Entry]

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        # Typer looks only at the names here, for the one that may have been meant.
        names: Any = dict.fromkeys(self.table)
        self.commands = names

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names, in the order of the help."""
        return list(self.table)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Load one command."""
        if cmd_name not in self.table:
            return None
        with uncollected():
            entry = self._found(cmd_name)
            return typer.main.get_command(_imported(cmd_name, entry) if isinstance(entry, Command) else entry)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write a line about each command."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, self._line(name)) for name in self.table])

    def make_context(self, *args: Any, **extra: Any) -> Any:
        """Read the options of the group."""
        with _usage():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: Any) -> Any:
        """Read the command line of the command, and run it."""
        with _usage():
            return super().invoke(ctx)

    def _line(self, name: str) -> str:
        entry = self._found(name)
        if isinstance(entry, Command):
            return entry.help
        return str(typer.main.get_command(entry).get_short_help_str(limit=200))

    def _found(self, name: str) -> Command | typer.Typer:
        entry = self.table[name]
        if not isinstance(entry, EntryPoint):
            return entry
        try:
            found = entry.load()
        except Exception as error:  # noqa: BLE001 - it must not break the other commands
            return _broken(name, entry.value, error)
        if isinstance(found, Command | typer.Typer):
            return found
        return _broken(name, entry.value, TypeError(f"{found!r} is neither a Command nor a typer.Typer"))


@contextmanager
def _usage() -> Iterator[None]:
    try:
        yield
    except _UsageError as error:
        error.exit_code = USAGE
        raise


def _no_options() -> None:
    """Take the options that belong to no command."""


def _imported(name: str, command: Command) -> typer.Typer:
    try:
        return _alone(name, pkgutil.resolve_name(command.where))
    except Exception as error:  # noqa: BLE001 - whatever a module raises
        return _broken(name, command.where, error)


def _alone(name: str, command: Callable[..., None], **settings: Any) -> typer.Typer:
    made = typer.Typer(**_PLAIN)
    made.command(name, context_settings=settings)(command)
    return made


def _broken(name: str, where: str, error: Exception) -> typer.Typer:
    """Return a command that says why another cannot be loaded, whatever it is given."""
    why = f"{type(error).__name__}: {error}"

    def broken(_: Annotated[list[str] | None, typer.Argument(hidden=True)] = None) -> None:
        complain(f"command {name!r} cannot be loaded from {where}: {why}; mend its package")
        raise typer.Exit(CANNOT)

    broken.__doc__ = f"Cannot be loaded from {where}."
    return _alone(name, broken, ignore_unknown_options=True)
