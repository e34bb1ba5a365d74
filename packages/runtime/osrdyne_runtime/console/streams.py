"""Standard output and error of a program: they take any text, and a program ends in good order where they take none.

What prints stays as it is: `print`, typer, rich and logging all write to the two streams that this replaces.
"""

from __future__ import annotations

import codecs
import errno
import io
import os
import select
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from osrdyne_runtime.console.output import CANNOT, NOT_READ, printable


@contextmanager
def guarded(who: str) -> Iterator[None]:
    """Guard the standard streams of this process while a command runs within, and end it where its output was lost.

    Characters that a stream cannot show are escaped. Standard output that is closed takes everything and shows nothing.
    Where its reader has gone, the command ends without a word, with `NOT_READ`. Where it cannot be written, the
    command ends with `CANNOT` and one line on standard error, in the name of `who`. What standard error cannot take is
    dropped.
    """
    # In this order: a file that is opened takes the lowest number, so that no socket becomes standard output.
    if sys.stdin is None:
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115 - until the process ends
    lost = _OutputLoss(who)
    sys.stdout, sys.stderr = _guarded(sys.stdout, lost.end), _guarded(sys.stderr, _drop)
    try:
        yield
    finally:
        with suppress(ValueError):  # the command closed it
            sys.stdout.flush()
        lost.end_again()


@contextmanager
def unfailing() -> Iterator[None]:
    """Drop what the standard streams cannot take while a program serves within: it has more to do than to print."""
    were = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = _guarded(sys.stdout, _drop), _guarded(sys.stderr, _drop)
    try:
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(ValueError):  # the program closed it
                stream.flush()
        sys.stdout, sys.stderr = were


def last_words(text: str) -> None:
    """Write a line on standard error, if there is one that takes it; to be used where nothing may fail."""
    with suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()


class _OutputLoss:
    """What becomes of the process when its output was lost."""

    def __init__(self, who: str) -> None:
        self._who = who
        self._status: int | None = None

    def end(self, error: OSError) -> None:
        if self._status is not None:
            return  # the process ends already: what is still written is dropped
        if isinstance(error, BrokenPipeError | ConnectionResetError):
            self._status = NOT_READ
        else:
            self._status = CANNOT
            todo = "free space there, or " if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) else ""
            why = error.strerror or str(error)
            last_words(f"{self._who}: standard output cannot be written: {printable(why)}; {todo}send it elsewhere")
        raise SystemExit(self._status)

    def end_again(self) -> None:
        """End the process also where a thread, or a library, caught the first end."""
        if self._status is not None:
            raise SystemExit(self._status)


def _drop(_: OSError) -> None:
    """Let what could not be written count as written."""


class _Raw(io.FileIO):
    """A file whose errors go to a function. What it could not write then counts as written."""

    def __init__(self, descriptor: int, failed: Callable[[OSError], None]) -> None:
        super().__init__(descriptor, "w", closefd=False)
        self._failed = failed

    def write(self, data: Any) -> int:
        try:
            while (written := super().write(data)) is None:
                select.select([], [self], [])  # another program made the pipe one that does not wait
        except OSError as error:
            self._failed(error)
            return len(data)
        return written


def _escaped(text: str, _: str = "strict") -> tuple[bytes, int]:
    return text.encode("ascii", "backslashreplace"), len(text)


class _EscapingEncoder(codecs.IncrementalEncoder):
    def encode(self, input: str, final: bool = False) -> bytes:  # noqa: A002 - the names are the library's
        return _escaped(input)[0]


class _Writer(codecs.StreamWriter):
    def encode(self, input: str, errors: str = "strict") -> tuple[bytes, int]:  # noqa: A002 - as above
        return _escaped(input)


#: ASCII in which all else is escaped. It has a name of its own, because typer and click write UTF-8 to a stream of
#: ASCII, past the guard; and it is a codec, because programs encode by the name that a stream gives.
_ESCAPED = "ascii-escaped"


def _codec(name: str) -> codecs.CodecInfo | None:
    if name not in (_ESCAPED, _ESCAPED.replace("-", "_")):
        return None
    return codecs.CodecInfo(
        _escaped,
        codecs.lookup("ascii").decode,
        codecs.lookup("ascii").streamreader,
        _Writer,
        incrementalencoder=_EscapingEncoder,
        incrementaldecoder=codecs.lookup("ascii").incrementaldecoder,
        name=_ESCAPED,
    )


codecs.register(_codec)


def _guarded(stream: Any, failed: Callable[[OSError], None]) -> io.TextIOWrapper:
    if stream is None:
        return open(os.devnull, "w", encoding="utf-8")
    try:
        descriptor = stream.fileno()
    except (OSError, AttributeError):
        return stream  # type: ignore[no-any-return] # one of a program that has this command within it
    with suppress(OSError):
        stream.flush()
    return io.TextIOWrapper(
        io.BufferedWriter(_Raw(descriptor, failed)),
        encoding=_ESCAPED if codecs.lookup(stream.encoding).name == "ascii" else stream.encoding,
        errors="backslashreplace",
        line_buffering=stream.line_buffering or isinstance(stream.buffer, io.RawIOBase),
    )
