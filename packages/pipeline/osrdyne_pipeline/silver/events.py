"""Events without duplicates: of those with one `event_id`, the one whose contents sort first stays.

An event arrives twice where a stream is read again, where files overlap, or where a sender sent it again. Which copy
stays must not depend on the order of reading.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 -- the usual name for it

from osrdyne_pipeline.schemas import EVENTS

#: What copies are sorted by: what they say, and then where they were found.
_ORDER = (
    "time_ms",
    "key",
    "event",
    "request_id",
    "worker_id",
    "outcome",
    "duration_ms",
    "source",
    "offset",
    "caller",
    "error",
    "detail",
    "output",
    "log",
    "began",
)


def events(bronze: DataFrame) -> DataFrame:
    """Return EVENTS of BRONZE."""
    # Most events came once. To sort only the others by all that they say, hashes of ids are counted first: where two
    # ids have the same hash, both are merely looked at more closely.
    marked = bronze.withColumn("mark", F.xxhash64("event_id"))
    counted = marked.groupBy("mark").agg(F.count("*").alias("copies"))
    # Not a cache: Spark would take that of another run over the same folders, whose files may be others by then. It
    # goes with the executor that has it, as what `SparkMaker` keeps.
    often = counted.where("copies > 1").select("mark").localCheckpoint()
    if often.isEmpty():
        return bronze.select(*EVENTS.names)
    copies = Window.partitionBy("event_id").orderBy(*_ORDER).rowsBetween(Window.unboundedPreceding, Window.currentRow)
    first = marked.join(often, "mark", "left_semi").withColumn("copy", F.row_number().over(copies)).where("copy = 1")
    once = marked.join(often, "mark", "left_anti")
    return once.select(*EVENTS.names).unionByName(first.select(*EVENTS.names))
