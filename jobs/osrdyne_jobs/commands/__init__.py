"""`osrdyne jobs`: look at jobs, and change them by hand.

An entry point of the group `osrdyne.commands` makes `app` a command of `osrdyne`.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup

#: In the order of the help. Each module is imported only when its command runs.
_COMMANDS = ()


class _Commands(TyperGroup):
    def list_commands(self, ctx: Any) -> list[str]:
        return list(_COMMANDS)


app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Register, list, show, repeat, cancel and delete jobs.",
)


@app.callback()
def jobs() -> None:
    """Take the options that belong to no command."""
