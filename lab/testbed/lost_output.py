"""A command whose standard output cannot show, or cannot take, what it prints; run in a fork, as its own program would.

The fork has the streams that Python makes for a program, on the descriptors 1 and 2.
"""

from __future__ import annotations

import io
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.forked import in_fork

#: A terminal of ASCII, a reader that has gone, a full disk, and no standard output at all.
CONDITIONS = ("ascii", "gone", "full", "closed")


@dataclass(frozen=True)
class CommandEnd:
    """How a command ended that may have lost its output."""

    code: Any
    out: str
    err: str


def run(main: Callable[[], None], words: list[str], condition: str) -> CommandEnd:
    """Run a program with these words on its command line, in one of the conditions."""
    with tempfile.TemporaryDirectory() as folder:
        done = in_fork(lambda: _run(main, words, condition, Path(folder)))
        assert isinstance(done, CommandEnd), done
        return done


def leaves(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Return the names of all commands of a command line, those of groups after their groups' names."""
    if not hasattr(command, "list_commands"):
        yield path
        return
    context = command.context_class(command)
    for name in command.list_commands(context):
        yield from leaves(command.get_command(context, name), (*path, name))


def _run(main: Callable[[], None], words: list[str], condition: str, folder: Path) -> CommandEnd:
    out, err = folder / "out", folder / "err"
    code: Any = None
    _put(os.open(err, os.O_CREAT | os.O_WRONLY), 2)
    _standard_output(condition, out)
    sys.argv = ["command", *words]
    encoding = "ascii" if condition == "ascii" else "utf-8"
    sys.stdout = None if condition == "closed" else _text(1, encoding, "strict")
    sys.stderr = _text(2, encoding, "backslashreplace")
    try:
        main()
    except SystemExit as error:
        code = error.code
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    return CommandEnd(code, out.read_text(errors="replace") if out.exists() else "", err.read_text())


def _standard_output(condition: str, file: Path) -> None:
    if condition == "ascii":
        _put(os.open(file, os.O_CREAT | os.O_WRONLY), 1)
    elif condition == "full":
        _put(os.open("/dev/full", os.O_WRONLY), 1)
    elif condition == "gone":
        reading, writing = os.pipe()
        os.close(reading)
        _put(writing, 1)
    else:
        os.close(1)


def _put(descriptor: int, number: int) -> None:
    os.dup2(descriptor, number)
    os.close(descriptor)


def _text(descriptor: int, encoding: str, errors: str) -> io.TextIOWrapper:
    raw = io.FileIO(descriptor, "w", closefd=False)
    return io.TextIOWrapper(io.BufferedWriter(raw), encoding=encoding, errors=errors)
