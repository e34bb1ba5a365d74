"""The events that a source's options name, as batches of RAW."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from osrdyne_pipeline.errors import EventsLost
from osrdyne_pipeline.source import address, columns, files, ranges, stream
from osrdyne_pipeline.source.options import ERROR, SourceOptions


def read(options: SourceOptions) -> Iterator[pa.RecordBatch]:
    """Give all that the options name, one part after the other. Raises `SourceError`."""
    if options.paths:
        # A part by itself: where one of a Parquet file is damaged, the others are read.
        for share in files.parts(files.find(options.paths)):
            yield from files.read(replace(share, name=options.names.get(share.path, "")))
        return
    for part in ranges_of(options):
        yield from read_range(options, part)


def ranges_of(options: SourceOptions) -> Sequence[ranges.OffsetRange]:
    """Return the ranges of a stream to read, from an offset to what is its end now."""
    held = stream.bounds(address.read(options.uri_file), options.stream)
    if held is None:
        return []
    start = held.first if options.start is None else options.start
    end = held.end if options.end is None else min(options.end, held.end)
    return ranges.plan(start, end, held.first, options.readers)


def read_range(options: SourceOptions, part: ranges.OffsetRange) -> Iterator[pa.RecordBatch]:
    """Give the events of a range as batches of RAW. Raises `EventsLost` for a gap that is not recorded."""
    uri = address.read(options.uri_file)
    if part.lost:
        yield _gap(options, part.start, part.end)
        return
    begun = False
    for found in stream.read(uri, options.stream, part.start, part.end):
        offset = found.offset if isinstance(found, stream.UnreadMessage) else found[0].offset
        if not begun and offset > part.start:
            yield from _lost_since(options, uri, part.start, offset)
        begun = True
        if isinstance(found, stream.UnreadMessage):
            yield _unreadable(options, found)
        else:
            yield from columns.record_batches(options.source, found)
    if not begun:
        yield from _lost_since(options, uri, part.start, part.end)


def _lost_since(options: SourceOptions, uri: str, start: int, until: int) -> Iterator[pa.RecordBatch]:
    """What retention took since the ranges were planned. Streams leave out offsets for the broker's own notes, too."""
    held = stream.bounds(uri, options.stream)
    if held is None or held.first > start:
        yield _gap(options, start, until if held is None else min(until, held.first))


def _unreadable(options: SourceOptions, found: stream.UnreadMessage) -> pa.RecordBatch:
    words = f"the message at offset {found.offset} of {options.stream} cannot be received: {found.reason}"
    return columns.problem_batch(options.source, found.offset, f"unreadable_offset: {words}")


def _gap(options: SourceOptions, start: int, until: int) -> pa.RecordBatch:
    words = f"retention removed the events {start} to {until - 1} of {options.stream} before they were read"
    if options.on_gap == ERROR:
        raise EventsLost(
            f"{words}; to go on without them, with a note in the rejects: --on-gap record (onGap of a source)"
        )
    return columns.problem_batch(options.source, start, f"gap: {words}")
