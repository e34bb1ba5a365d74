"""Events a second from a stream: the pipeline's source, a bare pika consumer, and a source that gives rows one by one.

Each round reads the whole stream once with each of the three, next to each other; the JVM and Spark's Python workers
are started before. The events are as large as true ones.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pika
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from benchmarks.ratios import Row, Target, compared
from benchmarks.rig import Rig
from osrdyne_pipeline import schemas
from osrdyne_pipeline.commands import starting
from osrdyne_pipeline.commands.options import DEFAULT_MEMORY
from osrdyne_pipeline.session import session
from osrdyne_pipeline.source import datasource, stream
from osrdyne_pipeline.spark.rows import of_arrow
from osrdyne_protocol import events, headers
from testbed.waiting import until

STREAM = "bench-events"
#: Events in the stream, rounds.
EVENTS, ROUNDS = 500_000, 3
QUICK_EVENTS, QUICK_ROUNDS = 50_000, 1
#: Messages on the way to a consumer at once.
PREFETCH = 2000


def measure(rig: Rig) -> list[Row]:
    """Return two rows: ours against the bare consumer, and against the source that gives rows.

    Raises `CannotStart` without a Java.
    """
    starting.check_java()
    count, rounds = (QUICK_EVENTS, QUICK_ROUNDS) if rig.quick else (EVENTS, ROUNDS)
    uri = rig.broker.amqp_uri()
    _fill(uri, count)
    with tempfile.TemporaryDirectory(prefix="osrdyne-bench-") as folder:
        uri_file = Path(folder, "uri")
        uri_file.touch(mode=0o600)
        uri_file.write_text(uri)
        spark = session("bench", master=f"local[{os.cpu_count()}]", memory=DEFAULT_MEMORY)
        try:
            spark.dataSource.register(RowSource)
            datasource.register(spark)
            for name in (datasource.NAME, RowSource.name()):
                _with_spark(spark, name, uri_file, count, warm=True)
            ours, bare, rows = [], [], []
            for _ in range(rounds):
                ours.append(_with_spark(spark, datasource.NAME, uri_file, count))
                bare.append(count / _bare(uri, count))
                rows.append(_with_spark(spark, RowSource.name(), uri_file, count))
        finally:
            spark.stop()
    return [
        compared("events from the stream to Spark", "1/s", ours, bare, "bare pika consumer", Target(0.5)),
        compared("events from the stream to Spark", "1/s", ours, rows, "row-by-row source", Target(4)),
    ]


def _fill(uri: str, count: int) -> None:
    """Put so many events into a new stream."""
    connection = pika.BlockingConnection(pika.URLParameters(uri))
    channel = connection.channel()
    channel.queue_delete(STREAM)
    channel.queue_declare(STREAM, durable=True, arguments={"x-queue-type": "stream"})
    for number in range(count):
        fields = events.headers(
            events.FINISHED,
            now_ms=1_700_000_000_000 + number,
            worker_id=f"worker-{number % 50}",
            request_id=f"{number:032x}",
            outcome="ok",
            duration_ms=number % 1000,
        )
        channel.basic_publish("", STREAM, b"", pika.BasicProperties(headers=fields))
    connection.close()
    until(lambda: (held := stream.bounds(uri, STREAM)) and held.end == count, within=300)


def _with_spark(spark: SparkSession, name: str, uri_file: Path, count: int, *, warm: bool = False) -> float:
    """Read all with a source, every column of it, and return events a second."""
    reader = spark.read.format(name).option("stream", STREAM).option("uri_file", str(uri_file))
    begun = time.perf_counter()
    rows = reader.option("endingOffset", str(1000 if warm else count)).load()
    rows.write.format("noop").mode("overwrite").save()
    return count / (time.perf_counter() - begun)


def _bare(uri: str, count: int) -> float:
    """Read all with pika's fastest adapter and nothing else; return the seconds."""
    seen = 0

    def delivered(channel: pika.channel.Channel, method: pika.spec.Basic.Deliver, *_: object) -> None:
        nonlocal seen
        seen += 1
        if seen % (PREFETCH // 2) == 0:
            channel.basic_ack(method.delivery_tag, multiple=True)
        if seen == count:
            connection.close()

    def opened(channel: pika.channel.Channel) -> None:
        channel.basic_qos(prefetch_count=PREFETCH)
        channel.basic_consume(STREAM, delivered, arguments={"x-stream-offset": "first"})

    begun = time.perf_counter()
    connection = pika.SelectConnection(
        pika.URLParameters(uri),
        on_open_callback=lambda made: made.channel(on_open_callback=opened),
        on_close_callback=lambda made, _: made.ioloop.stop(),
    )
    connection.ioloop.start()
    return time.perf_counter() - begun


class RowSource(DataSource):
    """What a source looks like that is written the short way: pika's blocking adapter, and a tuple for each event."""

    @classmethod
    def name(cls) -> str:
        return "rows_one_by_one"

    def schema(self) -> StructType:
        return of_arrow(schemas.RAW)

    def reader(self, schema: StructType) -> DataSourceReader:
        return RowReader(self.options["uri_file"], int(self.options["endingOffset"]))


class RowReader(DataSourceReader):
    """Reads the stream to an offset, acknowledging each message."""

    def __init__(self, uri_file: str, end: int) -> None:
        self._uri_file = uri_file
        self._end = end

    def read(self, partition: InputPartition) -> Iterator[tuple[object, ...]]:
        connection = pika.BlockingConnection(pika.URLParameters(Path(self._uri_file).read_text()))
        channel = connection.channel()
        channel.basic_qos(prefetch_count=PREFETCH)
        start = {"x-stream-offset": "first"}
        for method, properties, _body in channel.consume(STREAM, arguments=start, inactivity_timeout=60):
            if method is None:
                break
            channel.basic_ack(method.delivery_tag)
            fields = properties.headers
            yield (
                STREAM,
                int(fields["x-stream-offset"]),
                method.routing_key,
                fields.get(headers.X_EVENT),
                fields.get(headers.X_EVENT_ID),
                fields.get(headers.X_EVENT_TIME),
                fields.get(headers.X_WORKER_ID),
                fields.get(headers.X_REQUEST_ID),
                fields.get(headers.X_OUTCOME),
                fields.get(headers.X_DURATION),
                fields.get(headers.X_USER),
                fields.get(headers.X_ERROR),
                fields.get(headers.X_REASON),
                fields.get(headers.X_OUTPUT),
                fields.get(headers.X_LOG),
                fields.get(headers.X_STARTED),
                None,
                None,
            )
            if fields["x-stream-offset"] + 1 >= self._end:
                break
        connection.close()
