"""Where a command finds the broker's address, which holds a password: an option, a file, or the environment."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from osrdyne_runtime.settings import secrets


class CommandLine(Protocol):
    """What knows where an option comes from: `typer.Context`."""

    def get_parameter_source(self, name: str) -> Any:
        """Return an enumeration's member, among them COMMANDLINE, or None."""


def chosen(context: CommandLine, broker: str | None, file: Path | None, *, variable: str) -> str:
    """Return the broker's address: the option nearest to the command line wins, a file over an address.

    The options are named `broker` and `broker_file`; `variable` is the environment's name for the address.
    Raises SettingsError.
    """
    on_line = {name for name in ("broker", "broker_file") if _given(context, name)}
    if on_line == {"broker"}:
        file = None
    elif file is not None and "broker" not in on_line:
        broker = None
    return secrets.given(broker, file, "--broker", "--broker-file", variable)


def _given(context: CommandLine, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"
