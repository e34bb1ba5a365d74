"""Batches that ingest has committed: `bronze/batch=NAME`, and beside it `rejects/batch=NAME` where there are any.

Events are written aside, a folder a day. The batch's folder then takes its place in `bronze` by a rename, with a note
of what it holds; the rejects are in theirs before. So a batch is there whole or not at all, and doing it again gives
the same name. Files of bronze that former versions wrote also hold the columns `reason` and `raw`, empty.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from osrdyne_pipeline.lake import IN_BATCHES, Lake
from osrdyne_pipeline.source.consumer import StreamMessage
from osrdyne_protocol import headers as names
from osrdyne_protocol.event_batches import BATCH

if TYPE_CHECKING:
    from osrdyne_pipeline.store.opening import AnyLake

#: A batch's note of itself.
NOTE = "_batch.json"
#: Where batches are written.
STAGING = "_staging"


@dataclass(frozen=True)
class Mark:
    """By which a stream is known again: what was at the last offset that was read."""

    offset: int
    digest: str

    @classmethod
    def of(cls, message: StreamMessage) -> Mark:
        """Return the mark of a message: its key, event id and time, and the events of a batch."""
        parts = [message.routing_key, message.headers.get(names.X_EVENT_ID), message.headers.get(names.X_EVENT_TIME)]
        if names.text(message.headers.get(names.X_EVENT)) == BATCH:
            parts.append(hashlib.sha256(message.body).hexdigest())
        return cls(message.offset, hashlib.sha256(repr([str(part) for part in parts]).encode()).hexdigest()[:32])


@dataclass(frozen=True, kw_only=True)
class Batch:
    """What a batch holds: offsets of a stream from `start` to before `end`, or files by their digests."""

    name: str
    stream: str = ""
    #: Counts from 1: by one more each time the stream was deleted and made again.
    generation: int = 1
    start: int = 0
    end: int = 0
    mark: Mark | None = None
    files: tuple[str, ...] = ()
    events: int = 0
    rejects: int = 0

    @classmethod
    def of_note(cls, text: str) -> Batch:
        """Return the batch that a note is of."""
        note: dict[str, Any] = json.loads(text)
        mark = note["mark"]
        return cls(**{**note, "mark": None if mark is None else Mark(**mark), "files": tuple(note["files"])})

    def note(self) -> str:
        """Return the batch as text, which is kept with its events."""
        return json.dumps(asdict(self))

    def marked(self, mark: Mark | None) -> Batch:
        return replace(self, mark=mark)

    def counted(self, events: int, rejects: int) -> Batch:
        return replace(self, events=events, rejects=rejects)


def committed(lake: AnyLake) -> list[Batch]:
    """Return the notes of all committed batches, in the order of their names."""
    if not isinstance(lake, Lake):
        return lake.committed()
    notes = sorted(lake.path("bronze").glob(f"batch=*/{NOTE}"))
    return [Batch.of_note(note.read_text(encoding="utf-8")) for note in notes]


def clean(lake: AnyLake) -> None:
    """Remove what an earlier run left in a folder without committing it."""
    if not isinstance(lake, Lake):
        return
    shutil.rmtree(lake.home / STAGING, ignore_errors=True)
    for rejects in lake.path("rejects").glob("batch=*"):
        if not (lake.path("bronze") / rejects.name).exists():
            shutil.rmtree(rejects)


def place_for(lake: Lake, batch: Batch) -> tuple[Path, Path]:
    """Return where a batch is written aside, its events and its rejects; the tables are there then."""
    for name in IN_BATCHES:
        if not lake.exists(name):
            with lake.version(name):
                pass
    return _staging(lake) / batch.name, _staging(lake) / f"{batch.name}.rejects"


def commit(lake: Lake, batch: Batch) -> Batch:
    """Let a written batch take its place."""
    aside, bad = place_for(lake, batch)
    place = f"batch={batch.name}"
    (aside / NOTE).write_text(batch.note(), encoding="utf-8")
    if bad.is_dir():
        bad.rename(lake.path("rejects") / place)
    aside.rename(lake.path("bronze") / place)
    return batch


def digest(file: Path) -> str:
    """Return the digest of a file's content."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "blake2b").hexdigest()[:32]


def name_of(digests: Iterable[str] | Sequence[str]) -> str:
    """Return a name for files by their digests, the same in any order."""
    return hashlib.sha256("\n".join(sorted(digests)).encode()).hexdigest()[:24]


def _staging(lake: Lake) -> Path:
    return lake.home / STAGING
