"""Where data streams of a test are: one suite runs on each place."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

from osrdyne_relay import DataStreams, S3Settings, SharedDirectory
from osrdyne_relay.redis.names import new_id
from osrdyne_relay.streams.base import MARK, stored_name
from osrdyne_relay.streams.s3 import S3Streams
from testbed.s3.server import S3Server


class Place(ABC):
    """A store, seen from both sides."""

    #: What `streams` in the settings of a node holds.
    settings: dict[str, Any]

    @abstractmethod
    def store(self, *, keep: float = 86_400.0) -> DataStreams:
        """Return a store at this place."""

    @abstractmethod
    def files(self) -> list[Path]:
        """Return what is there, as files."""

    def of(self, stream: str) -> Path:
        """Return the file that has a stream."""
        (found,) = (path for path in self.files() if path.name == stored_name(stream))
        return found

    def grow_old(self, stream: str) -> None:
        """Let a stream be as old as can be."""
        os.utime(self.of(stream), (0, 0))

    @property
    @abstractmethod
    def folder(self) -> Path:
        """Return the folder that the store has for itself."""

    def foreign(self) -> list[Path]:
        """Put what other programs may have there, as old as can be."""
        one, two = new_id(), new_id()
        names = [
            "ab/thesis.docx",
            f"{one[:2]}/{one}",
            f"{one[:2]}/{two}{MARK}.docx",
            two,
            f"{one}.part",
            f"zz/{two}{MARK}",
        ]
        made = [self.folder / name for name in (*names, f"{one}{MARK}.d/file")]
        for path in made:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"mine")
            os.utime(path, (0, 0))
        return made


class Directory(Place):
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.settings = {"directory": str(directory)}

    def store(self, *, keep: float = 86_400.0) -> DataStreams:
        return SharedDirectory(self._directory, keep=keep)

    @property
    def folder(self) -> Path:
        return self._directory

    def files(self) -> list[Path]:
        return [path for path in self._directory.rglob("*") if path.is_file()]


class Bucket(Place):
    def __init__(self, server: S3Server) -> None:
        """Below a prefix of its own: other tests have the same bucket."""
        prefix = new_id()
        self._objects = server.bucket / prefix
        self.settings = {"s3": server.settings(prefix=prefix)}

    def store(self, *, keep: float = 86_400.0) -> DataStreams:
        return S3Streams(S3Settings.model_validate(self.settings["s3"]), keep=keep)

    @property
    def folder(self) -> Path:
        return self._objects

    def files(self) -> list[Path]:
        return [path for path in self._objects.rglob("*") if path.is_file()]
