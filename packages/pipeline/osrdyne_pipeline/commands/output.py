"""How commands speak: progress and errors on standard error, one line each; the outcome on standard output."""

from __future__ import annotations

import functools
import json
import re
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec

import typer
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from osrdyne_pipeline.commands.starting import Log
from osrdyne_pipeline.errors import PipelineError
from osrdyne_pipeline.report.element import visible
from osrdyne_protocol.errors import ProtocolError
from osrdyne_runtime.console.output import shows_all

P = ParamSpec("P")

#: Exit status when the work could not be done. That of a wrong argument is 2.
FAILED = 1
#: Letters of a library's error that are shown; the rest is in the log.
_LONGEST = 400


def failing_clearly(command: Callable[P, None]) -> Callable[P, None]:
    """Turn errors of a command into one line on standard error and exit status 1.

    With `--json` the same text is also the one document on standard output, as `error`.
    """

    @functools.wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except (PipelineError, ProtocolError) as error:
            text = str(error)
        except (PySparkException, Py4JError) as error:
            text = _spark(error)
        except OSError as error:
            text = f"{error.filename or 'a file'}: {error.strerror or error}"
        else:
            return
        if kwargs.get("json"):
            print_json({"error": text})
        complain(text)
        raise typer.Exit(FAILED)

    return wrapped


def complain(text: str) -> None:
    """Print one line for a person on standard error, whatever the text holds."""
    typer.echo(f"osrdyne-pipeline: {visible(' '.join(text.split()))}", err=True)


def print_json(value: Mapping[str, Any]) -> None:
    """Print one JSON document."""
    typer.echo(json.dumps(value, indent=2, ensure_ascii=not shows_all(sys.stdout), default=str))


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
        """End the part before, and begin one: `name`, the how manieth, of how many."""
        self._end()
        self._name, self._begun = name, time.monotonic()
        typer.echo(f"  {number}/{of} {name} ... ", err=True, nl=False)

    def _end(self, how: str = "") -> None:
        if self._name is not None:
            typer.echo(f"{how}{time.monotonic() - self._begun:.1f} s", err=True)
            self._name = None


def _spark(error: Exception) -> str:
    """Return what a person needs of Spark's error: its own words, without those of Java."""
    text = str(error)
    if "OutOfMemoryError" in text:
        return f"Java ran out of memory: give more by --memory; {Log.hint()}"
    if found := re.search(r"osrdyne_pipeline\.errors\.\w+: (.+)", text):
        return found.group(1)
    said = re.search(r"(?:Caused by: )?[\w.]+(?:Exception|Error): ([^\n]+)", text)
    first = said.group(1) if said else next(iter(text.splitlines()), type(error).__name__)
    return f"Spark could not do it: {first[:_LONGEST]}; {Log.hint()}"
