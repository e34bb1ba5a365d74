"""How the pipeline's commands report errors (one line each), and how far long work is."""

from __future__ import annotations

import time

import typer

from osrdyne_pipeline.errors import PipelineError
from osrdyne_protocol.errors import OsrdyneError
from osrdyne_runtime.console.output import CANNOT, failing_clearly


def _words(error: Exception) -> str:
    text = str(error)
    if isinstance(error, OSError) and error.filename:
        text = f"{error.filename}: {error.strerror}"
    return " ".join(text.split()) or type(error).__name__


#: Turns known errors of a command into one line and exit status 2.
one_line_errors = failing_clearly(dict.fromkeys((PipelineError, OsrdyneError, OSError), CANNOT), words=_words)


class Steps:
    """Says on standard error which part of a long work is done, and how long each took; to be used in `with`."""

    def __init__(self) -> None:
        self._name: str | None = None
        self._begun = time.monotonic()

    def __enter__(self) -> Steps:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._end("failed after " if kind is not None else "")

    def __call__(self, name: str, number: int = 1, of: int = 1) -> None:
        """End the part before, and begin the next: `name`, its number from 1, and how many there are."""
        self._end()
        self._name, self._begun = name, time.monotonic()
        typer.echo(f"  {number}/{of} {name} ... ", err=True, nl=False)

    def _end(self, how: str = "") -> None:
        if self._name is not None:
            typer.echo(f"{how}{time.monotonic() - self._begun:.1f} s", err=True)
            self._name = None
