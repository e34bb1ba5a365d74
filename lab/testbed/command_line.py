"""The `osrdyne` command within the test's process: the same code, without half a second of start-up a call."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass

from typer.testing import CliRunner

from osrdyne_command.program import app


@dataclass(frozen=True)
class CommandResult:
    """How a command ended."""

    code: int
    out: bytes
    err: str

    @property
    def line(self) -> str:
        """The one line on standard error, which every error is."""
        lines = self.err.splitlines()
        assert len(lines) == 1, self
        assert lines[0].startswith("osrdyne: "), self
        return lines[0]


def osrdyne(*words: str | bytes, stdin: bytes = b"", variables: Mapping[str, str] | None = None) -> CommandResult:
    """Run `osrdyne WORDS`, with no OSRDYNE_ variables but these. An unexpected exception is raised."""
    ours = {name: None for name in os.environ if name.startswith("OSRDYNE_")}
    root = logging.getLogger()
    handlers, levels = root.handlers[:], {name: logging.getLogger(name).level for name in ("", "pika", "asyncio")}
    try:
        result = CliRunner().invoke(
            app, [os.fsdecode(word) for word in words], input=stdin, env={**ours, **(variables or {})}
        )
    finally:
        # A command sets logging up for its process; this one goes on.
        root.handlers[:] = handlers
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return CommandResult(result.exit_code, result.stdout_bytes, result.stderr)
