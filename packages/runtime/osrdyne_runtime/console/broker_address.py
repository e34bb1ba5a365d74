"""Where a command finds the broker's address, which holds a password: an option, a file, or the environment."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from osrdyne_runtime.console.output import CannotAsk


class CommandLine(Protocol):
    """What knows where an option comes from: `typer.Context`."""

    def get_parameter_source(self, name: str) -> Any:
        """Return an enumeration's member, among them COMMANDLINE, or None."""


def chosen(context: CommandLine, broker: str | None, file: Path | None, *, variable: str) -> str:
    """Return the broker's address: the option nearest to the command line wins, a file over an address.

    The options are named `broker` and `broker_file`; `variable` is the environment's name for the address.
    """
    on_line = {name for name in ("broker", "broker_file") if _given(context, name)}
    if len(on_line) == 2:
        raise CannotAsk("--broker and --broker-file name two brokers; give one of them")
    if file is not None and "broker" not in on_line:
        return in_file(file, "--broker-file")
    if broker is None:
        raise CannotAsk(f"no broker is named; give --broker-file FILE, or set {variable}")
    return broker


def in_file(file: Path, option: str) -> str:
    """Return the address that a file holds; the option that names the file is part of the error."""
    try:
        return file.read_text(encoding="utf-8-sig").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise CannotAsk(f"{option} {file} cannot be read: {why(error)}") from None


def why(error: OSError | UnicodeDecodeError) -> str:
    """Return why a file cannot be read."""
    return (error.strerror or str(error)) if isinstance(error, OSError) else "it is not UTF-8 text"


def _given(context: CommandLine, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"
