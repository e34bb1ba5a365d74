"""The program `osrdyne`, with the commands that installed packages register.

They do so by entry points of the group `osrdyne.commands`: the name is that of the command, the object a `Command`, or
a group, which is a `typer.Typer`.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import Annotated

import typer

from osrdyne_command.group import group
from osrdyne_runtime.console import init
from osrdyne_runtime.console.streams import guarded

#: Entry points of this group are commands.
GROUP = "osrdyne.commands"
#: Modules of the packages that are released with this one.
_OURS = ("osrdyne", "osrdyne_bus", "osrdyne_jobs", "osrdyne_pipeline", "osrdyne_relay")
_HELP = """Call keyed workers through RabbitMQ, and run and look at the daemon that starts them.

Every error is one line: what is wrong, where, and what to do. What to look at first: `osrdyne status`.

Exit status: 0 done, or the answer is yes; 1 the answer is no, or there are findings; 2 it could not be asked or done;
64 wrong usage.
"""


def registered() -> dict[str, EntryPoint]:
    """Return the commands of all packages that are installed, by name. None can take the name of one of ours."""
    found = entry_points(group=GROUP)
    return {entry.name: entry for entry in sorted(found, key=lambda entry: (entry.name, _is_ours(entry)))}


def _is_ours(entry_point: EntryPoint) -> bool:
    return entry_point.module.partition(".")[0] in _OURS


app = group(_HELP, registered())


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"osrdyne {version('osrdyne-command')}")
        raise typer.Exit


@app.callback()
def osrdyne(
    _: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Take the options that belong to no command."""


def main() -> None:
    """Run the command line."""
    run(app, "osrdyne")


def run(group: typer.Typer, name: str) -> None:
    """Run a group of commands as a program, which its help calls by this name."""
    init.go_on_in_child()
    with guarded("osrdyne"):
        group(prog_name=name)
