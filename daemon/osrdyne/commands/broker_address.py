"""Where a command finds the broker's address, which holds a password: an option, a file, or the environment."""

from __future__ import annotations

from pathlib import Path

import typer

from osrdyne.commands.output import CannotAsk


def chosen(context: typer.Context, broker: str | None, file: Path | None, *, variable: str) -> str:
    """Return the broker's address: the option nearest to the command line wins, a file over an address.

    The options are named `broker` and `broker_file`; `variable` is the environment's name for the address.
    """
    on_line = {name for name in ("broker", "broker_file") if _given(context, name)}
    if len(on_line) == 2:
        raise CannotAsk("--broker and --broker-file name two brokers; give one of them")
    if file is not None and "broker" not in on_line:
        try:
            return file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise CannotAsk(f"--broker-file {file} cannot be read: {why(error)}") from None
    if broker is None:
        raise CannotAsk(f"no broker is named; give --broker-file FILE, or set {variable}")
    return broker


def why(error: OSError | UnicodeDecodeError) -> str:
    """Return why a file cannot be read."""
    return (error.strerror or str(error)) if isinstance(error, OSError) else "it is not UTF-8 text"


def _given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"
