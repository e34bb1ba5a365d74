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

from osrdyne_pipeline.errors import SourceError, StreamChanged
from osrdyne_pipeline.schemas import RAW
from osrdyne_pipeline.source import address, files, ranges, reading, stream
from osrdyne_pipeline.source.options import SourceOptions
from osrdyne_pipeline.spark.rows import of_arrow

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
        return of_arrow(RAW)

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

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(part) for part in files.parts(files.find(self._paths))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield from files.read(partition.value)


class StreamBatchReader(DataSourceReader):
    """A stream, from an offset to what is its end when the query begins."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(part) for part in reading.ranges_of(self._options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield from reading.read_range(self._options, partition.value)


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

    def partitions(self, start: Mapping[str, int], end: Mapping[str, int]) -> Sequence[InputPartition]:
        low, high = int(start["offset"]), int(end["offset"])
        if high < low:
            raise StreamChanged(
                f"the stream {self._options.stream} ends at offset {high}, and {low} were read: it was deleted "
                "and made again; begin with a new checkpoint"
            )
        self._next = high
        if low == high:
            return []
        held = self._bounds()
        plan = ranges.plan(low, high, high if held is None else held.first, self._options.readers)
        return [InputPartition(part) for part in plan]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield from reading.read_range(self._options, partition.value)
