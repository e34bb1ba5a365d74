"""From a source into the lake: bronze and rejects, batch by batch, each once however often a job is killed.

A batch is written aside and then takes its place in `bronze` by a rename, under a name that says what it holds: a
stream's offsets from and to, or a digest of files. That rename is what commits it, and the names in `bronze` are the
only record of what was read: a job that starts again removes what was not committed, and goes on behind the last.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

from osrdyne_pipeline import batches, places
from osrdyne_pipeline.batches import Batch, Mark
from osrdyne_pipeline.errors import BrokerAway, EventsLost, StreamChanged
from osrdyne_pipeline.judging import ALLOWANCE_MS
from osrdyne_pipeline.lake import Lake
from osrdyne_pipeline.small import intake
from osrdyne_pipeline.small.engine import SmallEngine
from osrdyne_pipeline.source import address, files, stream
from osrdyne_pipeline.source.consumer import StreamMessage
from osrdyne_pipeline.source.files import EventFile
from osrdyne_pipeline.source.options import ERROR, SourceOptions
from osrdyne_protocol.names import PoolNames
from osrdyne_runtime import log_lines
from osrdyne_runtime.console.imports import extra
from osrdyne_runtime.outages import OutageLog

if TYPE_CHECKING:
    from osrdyne_pipeline.store.opening import AnyLake

log = log_lines.logger(__name__)

#: Events of a stream that are committed at once. A job that is killed repeats at most so many.
BATCH_EVENTS = 1_000_000
#: Bytes of files that are committed at once. A larger file is committed alone.
BATCH_BYTES = 512_000_000
#: Seconds between two looks for new events when following.
EVERY_SECONDS = 10.0


@dataclass
class IngestProgress:
    """What a run has done so far; given to `progress` after each batch."""

    batches: int = 0
    events: int = 0
    rejects: int = 0
    #: Reason -> how many.
    reasons: dict[str, int] = field(default_factory=dict)
    #: Files that had been read before.
    known_files: int = 0
    #: What was read and what there was when the run looked last: offsets of a stream, or bytes of files.
    done: int = 0
    total: int = 0


@dataclass(frozen=True, kw_only=True)
class IngestRules:
    """How events are taken in."""

    #: `error` or `record`: what to do where retention removed events before they were read.
    on_gap: str = ERROR
    #: Most events of a stream in a batch.
    batch_events: int = BATCH_EVENTS
    #: The stream was deleted and made again: read it from its first event, and keep what was read of the old one.
    new_stream: bool = False


def _nothing(_so_far: IngestProgress) -> None:
    """Progress that is not shown."""


def ingest_stream(
    engine: SmallEngine,
    lake: AnyLake,
    *,
    uri_file: str | None = None,
    rules: IngestRules | None = None,
    follow: bool = False,
    stop: Event | None = None,
    every: float = EVERY_SECONDS,
    progress: Callable[[IngestProgress], None] = _nothing,
) -> IngestProgress:
    """Read the pool's stream from where the last run stopped to its end; when following, until `stop` is set.

    A run that follows waits for a broker that is away. `uri_file` holds the broker's address; without it the
    environment does. Raises `LakeBusy`, `SourceError`, `EventsLost` and `StreamChanged`, whose texts say what to do.
    """
    rules = rules or IngestRules()
    stop = stop or Event()
    so_far = IngestProgress()
    with lake.only_writer("ingest"):
        batches.clean(lake)
        job, outage = _StreamJob(engine, lake, uri_file, rules), OutageLog(log, "the broker")
        while True:
            if outage.is_away:  # it may have gone within a batch
                batches.clean(lake)
            try:
                for batch, reasons in job.batches(so_far):
                    _count(so_far, batch, reasons)
                    progress(so_far)
                    if stop.is_set():
                        break
            except BrokerAway as error:
                if not follow:
                    raise
                outage.failed(str(error), time.monotonic())
            else:
                outage.over(time.monotonic())
            if not follow or stop.wait(every):
                return so_far


class _StreamJob:
    """One run over one stream."""

    def __init__(self, engine: SmallEngine, lake: AnyLake, uri_file: str | None, rules: IngestRules) -> None:
        self._engine = engine
        self._lake = lake
        self._uri_file = uri_file
        self._rules = rules
        self._stream = PoolNames(lake.pool).events_stream
        read = [batch for batch in batches.committed(lake) if batch.stream == self._stream]
        last = max(read, key=lambda batch: (batch.generation, batch.end), default=None)
        self._generation = last.generation if last else 1
        self._next = last.end if last else None
        marks = [batch.mark for batch in read if batch.generation == self._generation and batch.mark is not None]
        self._mark = max(marks, key=lambda mark: mark.offset, default=None)
        if rules.new_stream and last is not None:
            self._generation, self._next, self._mark = last.generation + 1, None, None

    def batches(self, so_far: IngestProgress) -> Any:
        """Commit what there is now, batch by batch."""
        held = self._held()
        if held is None:
            return
        start = held.first if self._next is None else self._next
        so_far.total = so_far.done + held.end - start
        while start < held.end:
            end = min(held.end, max(start, held.first) + self._rules.batch_events)
            done = self._commit(start, end)
            so_far.done += end - start
            start = self._next = end
            yield done

    def _held(self) -> stream.Bounds | None:
        """Return what the stream holds. Raises where it is another stream, or where unread events are gone."""
        uri = address.read(self._uri_file)
        held = stream.bounds(uri, self._stream)
        if held is None or self._next is None:
            return held
        if held.end < self._next:
            raise StreamChanged(self._changed(f"it ends at offset {held.end}, and {self._next} were read"))
        if self._mark is not None and held.first <= self._mark.offset:
            found = stream.message_at(uri, self._stream, self._mark.offset)
            if not isinstance(found, StreamMessage) or Mark.of(found) != self._mark:
                raise StreamChanged(
                    self._changed(f"at offset {self._mark.offset} is another event than was read there")
                )
        if held.first > self._next and self._rules.on_gap == ERROR:
            raise EventsLost(
                f"retention removed the events {self._next} to {held.first - 1} of {self._stream} before they were "
                "read; to go on without them, with a note in the rejects: --on-gap record. To lose none, ingest more "
                "often or let the pool keep events for longer (events_max_age, events_max_bytes)"
            )
        return held

    def _changed(self, why: str) -> str:
        return (
            f"the stream {self._stream} was deleted and made again since it was read ({why}): to add its "
            "events to those of the old one, say so (new stream); else use a lake of its own"
        )

    def _commit(self, start: int, end: int) -> tuple[Batch, dict[str, int]]:
        source = self._stream if self._generation == 1 else f"{self._stream}#{self._generation}"
        options = SourceOptions(
            stream=self._stream,
            source=source,
            uri_file=self._uri_file,
            start=start,
            end=end,
            on_gap=self._rules.on_gap,
        )
        batch = Batch(
            name=f"{self._stream}-{self._generation:04d}-{start:020d}-{end:020d}",
            stream=self._stream,
            generation=self._generation,
            start=start,
            end=end,
        )
        uri = address.read(self._uri_file)
        # The last message that there is of the batch: offsets are left out for the broker's own notes.
        last = stream.message_at(uri, self._stream, end - 1)
        mark = Mark.of(last) if isinstance(last, StreamMessage) and last.offset == end - 1 else None
        return _write(self._engine, self._lake, options, batch.marked(mark))


def ingest_files(
    engine: SmallEngine,
    lake: AnyLake,
    paths: Sequence[str | Path],
    *,
    progress: Callable[[IngestProgress], None] = _nothing,
) -> IngestProgress:
    """Read files, and those in folders, that were not read before: a file is known by its content.

    A path may also be an address of an object store. Raises `LakeBusy`, `LakeError` where a store cannot be used, and
    `SourceError` where a path is absent.
    """
    so_far = IngestProgress()
    with lake.only_writer("ingest"):
        batches.clean(lake)
        known = {digest for batch in batches.committed(lake) for digest in batch.files}
        new: list[EventFile] = []
        for file in _found([str(path) for path in paths]):
            if file.digest in known:
                so_far.known_files += 1
            else:
                known.add(file.digest)
                new.append(file)
        so_far.total = sum(file.size for file in new)
        for group in _groups(new):
            digests = tuple(file.digest for file in group)
            batch = Batch(name=f"files-{batches.name_of(digests)}", files=digests)
            with _local_files(group) as options:
                _count(so_far, *_write(engine, lake, options, batch))
            so_far.done += sum(file.size for file in group)
            progress(so_far)
    return so_far


def _found(paths: Sequence[str]) -> Iterator[EventFile]:
    """Give the files that paths and addresses name."""
    addresses = [path for path in paths if places.store(path) is not None]
    for file in files.find([path for path in paths if path not in addresses]):
        yield EventFile(str(file), file.stat().st_size, batches.digest(file))
    for place in addresses:
        with extra("osrdyne-pipeline[s3]"):
            from osrdyne_pipeline.store import sources
        yield from sources.find(place)


@contextmanager
def _local_files(group: Sequence[EventFile]) -> Iterator[SourceOptions]:
    """Give options that name files of this machine; copies of those in an object store are there within the block."""
    stored = [file for file in group if places.store(file.name) is not None]
    paths = [file.name for file in group if file not in stored]
    if not stored:
        yield SourceOptions(paths=tuple(paths))
        return
    from osrdyne_pipeline.store import sources

    with sources.fetched(stored) as copies:
        yield SourceOptions(paths=(*paths, *copies), names=copies)


def _groups(new: Sequence[EventFile]) -> list[list[EventFile]]:
    """Files that are committed together: as many as hold so many bytes."""
    groups: list[list[EventFile]] = []
    size = BATCH_BYTES
    for file in new:
        if size >= BATCH_BYTES:
            groups.append([])
            size = 0
        groups[-1].append(file)
        size += file.size
    return groups


def _write(engine: SmallEngine, lake: AnyLake, options: SourceOptions, batch: Batch) -> tuple[Batch, dict[str, int]]:
    """Read what the options name, judge it, write it and commit it."""
    latest_ms = time.time_ns() // 1_000_000 + ALLOWANCE_MS
    if not isinstance(lake, Lake):
        return intake.append_batch(engine, lake, batch, options, latest_ms)
    events, reasons = intake.write_batch(engine, lake, batch, options, latest_ms)
    return batches.commit(lake, batch.counted(events, sum(reasons.values()))), reasons


def _count(so_far: IngestProgress, batch: Batch, reasons: dict[str, int]) -> None:
    so_far.batches += 1
    so_far.events += batch.events
    so_far.rejects += batch.rejects
    for reason, count in reasons.items():
        so_far.reasons[reason] = so_far.reasons.get(reason, 0) + count
