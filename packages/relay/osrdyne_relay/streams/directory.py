"""Data streams as files of a directory that all nodes have: a local one for nodes of one machine, NFS or the like.

A file gets its name when it is whole, so that a reader never sees a part of it. Its age is by the clock of the file
system that has it: the clocks of two machines are never compared. What has no name of ours is left alone.
"""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import AsyncIterable, AsyncIterator, Callable
from contextlib import suppress
from functools import partial
from io import BufferedWriter, FileIO, IOBase
from pathlib import Path
from typing import TypeVar

from osrdyne_relay.errors import StreamLost
from osrdyne_relay.redis.names import new_id
from osrdyne_relay.streams.base import CHUNK, stored_name, stream_in
from osrdyne_runtime import log_lines

log = log_lines.logger(__name__)

#: Ending of the name of what is being written.
_PART = ".part"

File = TypeVar("File", bound=IOBase)


class SharedDirectory:
    """A store below one directory. Only the user of the nodes can read what it writes."""

    def __init__(self, directory: Path, *, keep: float = 86_400.0) -> None:
        """`keep`: seconds after the last touch for which a stream stays where nothing removed it."""
        self._directory = directory
        self._keep = keep
        self._said = False

    async def store(self, stream: str, chunks: AsyncIterable[bytes]) -> int:
        path = self._path(stream)
        part = path.with_name(path.name + _PART)
        size = 0
        try:
            with await _in_thread(partial(_opened, part)) as file:
                async for chunk in chunks:
                    size += await asyncio.to_thread(file.write, chunk)
                await asyncio.to_thread(_written, file)
            await asyncio.to_thread(part.rename, path)
        except BaseException:
            # Not in a thread: this task may be cancelled at each `await`.
            part.unlink(missing_ok=True)
            raise
        return size

    async def read(self, stream: str) -> AsyncIterator[bytes]:
        path = self._path(stream)
        try:
            file = await _in_thread(partial(_readable, path))
        except OSError as error:
            raise StreamLost(
                f"data stream {stream} cannot be read: {error.strerror}; its call may have ended"
            ) from error
        with file:
            while chunk := await asyncio.to_thread(file.read, CHUNK):
                yield chunk

    async def touch(self, stream: str) -> None:
        with suppress(OSError):
            await asyncio.to_thread(os.utime, self._path(stream))

    async def remove(self, stream: str) -> None:
        with suppress(OSError):
            await asyncio.to_thread(self._path(stream).unlink)

    async def sweep(self) -> int:
        return await asyncio.to_thread(self._sweep)

    def _sweep(self) -> int:
        probe = self._path(new_id())
        _opened(probe).close()
        now = probe.stat().st_mtime
        probe.unlink()
        removed, foreign = 0, 0
        for path in self._directory.glob("*/*"):
            stream = stream_in(path.name, _PART)
            if stream is None or path.parent.name != stream[:2]:
                foreign += 1
                continue
            with suppress(OSError):
                found = path.lstat()
                if stat.S_ISREG(found.st_mode) and now - found.st_mtime > self._keep:
                    path.unlink()
                    removed += 1
        if foreign and not self._said:
            self._said = True
            log.warning(
                "files that the relay did not write are left alone",
                extra={"directory": str(self._directory), "files": foreign},
            )
        return removed

    def _path(self, stream: str) -> Path:
        name = stored_name(stream)
        return self._directory / name[:2] / name


async def _in_thread(opens: Callable[[], File]) -> File:
    """Open a file in a thread. Where this task is cancelled meanwhile, wait for the file, and close it."""
    opening = asyncio.ensure_future(asyncio.to_thread(opens))
    try:
        return await asyncio.shield(opening)
    except asyncio.CancelledError:
        with suppress(OSError):
            (await opening).close()
        raise


def _opened(path: Path) -> BufferedWriter:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return open(path, "wb", opener=_only_ours)


def _readable(path: Path) -> FileIO:
    return FileIO(path)


def _only_ours(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _written(file: BufferedWriter) -> None:
    """Let other machines see all of it, and find out now that the disk is full."""
    file.flush()
    os.fsync(file.fileno())
