"""`osrdyne jobs`: look at jobs, and change them by hand.

An entry point of the group `osrdyne.commands` makes `app` a command of `osrdyne`. `looking` has `list`, `show` and
`schemas`, `changing` has `cancel` and `delete`, and what `redo` does with ids. `create`, `redo`, `migrate`,
`prepare_database`, `restored` and `serve` have a module each. `options` declares what several take, `database` opens
the database that they name, `types` loads types of jobs, `text` prints for a person.
"""

from __future__ import annotations

import pkgutil
from typing import Any

import typer
from typer.core import TyperGroup

#: In the order of the help. Each is imported only when it runs.
_COMMANDS = {
    "create": "create:command",
    "list": "looking:list_",
    "show": "looking:show",
    "redo": "redo:command",
    "cancel": "changing:cancel",
    "delete": "changing:delete",
    "schemas": "looking:schemas",
    "migrate": "migrate:command",
    "prepare-database": "prepare_database:command",
    "restored": "restored:command",
    "serve": "serve:command",
}
_PLAIN: Any = {"add_completion": False, "rich_markup_mode": None, "pretty_exceptions_enable": False}


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
    alone = typer.Typer(**_PLAIN)
    alone.command(name)(pkgutil.resolve_name(f"{__name__}.{_COMMANDS[name]}"))
    return typer.main.get_command(alone)


app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="""Register, list, show, repeat, cancel and delete jobs, and run the process that finds what was missed.

Exit status: 0 done; 1 the answer is no (an unknown job, a state that does not allow it, a payload that does not fit);
2 the jobs could not be reached.""",
    **_PLAIN,
)


@app.callback()
def jobs() -> None:
    """Take the options that belong to no command."""
