"""`osrdyne_events`, a data source of Spark: the events of a pool, from its stream or from files, with the schema RAW.

    datasource.register(spark)
    spark.read.format("osrdyne_events").option("pool", "core").option("uri_file", "events.uri").load()
    spark.readStream.format("osrdyne_events").option("pool", "core").option("uri_file", "events.uri").load()
    spark.read.format("osrdyne_events").load("events/")

Spark's offset of a stream is the stream's own. Options: see options.SourceOptions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from osrdyne_pipeline.errors import EventsLost, SourceError, StreamChanged
from osrdyne_pipeline.schemas import RAW
from osrdyne_pipeline.source import address, columns, files, ranges, stream
from osrdyne_pipeline.source.options import ERROR, SourceOptions

NAME = "osrdyne_events"


def register(spark: SparkSession) -> None:
    """Make the source known to a session."""
    spark.dataSource.register(EventsSource)


class EventsSource(DataSource):
    """What Spark knows of us."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        return RAW

    def reader(self, schema: StructType) -> DataSourceReader:
        options = SourceOptions.of(self.options)
        return FilesReader(options) if options.paths else StreamBatchReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 -- Spark's name
        options = SourceOptions.of(self.options)
        if options.paths:
            raise SourceError("files are read as a batch; ingest knows which it has read")
        return StreamReader(options)


class FilesReader(DataSourceReader):
    """Files, all of them at once."""

    def __init__(self, options: SourceOptions) -> None:
        self._paths = options.paths

    def partitions(self) -> Sequence[files.FilePart]:
        return files.parts(files.find(self._paths))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, files.FilePart):
            yield from files.read(partition)


class StreamBatchReader(DataSourceReader):
    """A stream, from an offset to what is its end when the query begins."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[ranges.OffsetRange]:
        options = self._options
        held = stream.bounds(address.read(options.uri_file), options.stream)
        if held is None:
            return []
        start = held.first if options.start is None else options.start
        end = held.end if options.end is None else min(options.end, held.end)
        return ranges.plan(start, end, held.first, options.readers)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield from read_range(self._options, partition)


class StreamReader(DataSourceStreamReader):
    """A stream for a streaming query, whose checkpoint holds the offset from which to go on."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        #: From where the next batch begins; None after a restart until Spark has said so.
        self._next: int | None = None

    def _bounds(self) -> stream.Bounds | None:
        return stream.bounds(address.read(self._options.uri_file), self._options.stream)

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 -- Spark's name
        if self._options.start is None:
            held = self._bounds()
            self._next = 0 if held is None else held.first
        else:
            self._next = self._options.start
        return {"offset": self._next}

    def latestOffset(self) -> dict[str, int]:  # noqa: N802 -- Spark's name
        held = self._bounds()
        end = (self._next or 0) if held is None else held.end
        if self._options.most and self._next is not None:
            first = self._next if held is None else max(self._next, held.first)
            end = min(end, first + self._options.most)
        return {"offset": end}

    def partitions(self, start: Mapping[str, int], end: Mapping[str, int]) -> Sequence[ranges.OffsetRange]:
        low, high = int(start["offset"]), int(end["offset"])
        if high < low:
            raise StreamChanged(
                f"the stream {self._options.stream} ends at offset {high}, and {low} were read: it was made anew; "
                "begin with a new checkpoint"
            )
        self._next = high
        if low == high:
            return []
        held = self._bounds()
        return ranges.plan(low, high, high if held is None else held.first, self._options.readers)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield from read_range(self._options, partition)


def read_range(options: SourceOptions, part: InputPartition) -> Iterator[pa.RecordBatch]:
    """Give the events of a range as batches of RAW. Raises `EventsLost` for a gap that is not recorded."""
    if not isinstance(part, ranges.OffsetRange):
        raise TypeError(part)
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
        raise EventsLost(f"{words}; to go on without them: onGap=record")
    return columns.problem_batch(options.source, start, f"gap: {words}")
