"""What policies are judged on: each key's stretches of activity, out of silver requests, as arrays.

Spark orders the requests of each key and merges those less than MERGE_SECONDS apart into one stretch; so a key has at
most one stretch a minute of history, and what comes to this process is bounded: of a longer history than `most`
stretches only the newest weeks are taken.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 -- everybody's name for it

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

#: Requests this much apart are one stretch: no policy compared here lets a group go sooner.
MERGE_SECONDS = 60
#: Stretches that are brought to this process: about 200 MB.
MOST_STRETCHES = 4_000_000
DAY = 86_400
WEEK = 7 * DAY
#: The order of a key's requests.
ORDER = ("seen_ms", "request_id", "number")


@dataclass(frozen=True)
class Calls:
    """Stretches of activity, ordered by key and time. Times are seconds since the Unix epoch."""

    keys: tuple[str, ...]
    #: Of each stretch: number of its key in `keys`, first request, end of the last, number of requests.
    key: Integers
    begin: Floats
    end: Floats
    requests: Integers
    #: End of the stretch before, of the same key; -inf for a key's first.
    before: Floats
    #: Begin of the next, of the same key; inf for a key's last.
    after: Floats
    #: What is covered: the first day's begin, and the end of the last whole day.
    since: float
    until: float
    #: Whether older weeks were left out.
    shortened: bool = False

    @classmethod
    def of(
        cls,
        keys: tuple[str, ...],
        key: Integers,
        begin: Floats,
        end: Floats,
        requests: Integers,
        shortened: bool = False,
    ) -> Calls:
        """Return the calls, from columns ordered by key and begin."""
        first = np.ones(len(key), bool)
        first[1:] = key[1:] != key[:-1]
        before = np.where(first, -np.inf, np.roll(end, 1))
        after = np.where(np.roll(first, -1), np.inf, np.roll(begin, -1))
        since = float(begin.min() // DAY * DAY) if len(begin) else 0.0
        until = float(end.max() // DAY * DAY) if len(end) else 0.0
        return cls(keys, key, begin, end, requests, before, after, since, until, shortened)

    def part(self, since: float, until: float) -> Calls:
        """Return the calls that a replay of [since, until) looks at: those within, and each key's last before."""
        seen = (self.begin < until) & (self.after > since)
        return replace(
            self,
            key=self.key[seen],
            begin=self.begin[seen],
            end=self.end[seen],
            requests=self.requests[seen],
            before=self.before[seen],
            after=self.after[seen],
            since=since,
            until=until,
        )


def collect(requests: DataFrame, most: int = MOST_STRETCHES) -> Calls:
    """Return the calls of REQUESTS: all of them, or the newest whole weeks of at most `most` stretches."""
    found = stretches(requests).persist(StorageLevel.DISK_ONLY)
    try:
        since = _newest(found, most)
        kept = found if since is None else found.where(F.col("begin_ms") >= since)
        table = kept.select("key", "begin_ms", "end_ms", "requests").orderBy("key", "begin_ms").toArrow()
    finally:
        found.unpersist()
    encoded = table.column("key").combine_chunks().dictionary_encode()
    return Calls.of(
        tuple(encoded.dictionary.to_pylist()),
        encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64),
        table.column("begin_ms").to_numpy() / 1000.0,
        table.column("end_ms").to_numpy() / 1000.0,
        table.column("requests").to_numpy().astype(np.int64),
        since is not None,
    )


def _newest(found: DataFrame, most: int) -> int | None:
    """Return the begin (milliseconds) of the newest weeks that together have at most `most` stretches; None: all."""
    week_ms = WEEK * 1000
    weeks = found.groupBy(F.floor(F.col("begin_ms") / week_ms).alias("week")).count().orderBy(F.desc("week")).collect()
    total, oldest = 0, None
    for row in weeks:
        total += row["count"]
        if total > most and oldest is not None:
            return int(oldest) * week_ms
        oldest = row["week"]
    return None


def end_ms() -> Column:
    """When a request was done with; where that is not known, when it was last seen."""
    return F.greatest("seen_ms", F.coalesce("done_ms", "received_ms", "seen_ms"))


def gaps(requests: DataFrame) -> DataFrame:
    """Return each request's key, its `seen_ms` and `end_ms`, and `before_ms`: until when its key had been active, null
    for a key's first.
    """
    earlier = Window.partitionBy("key").orderBy(*ORDER).rowsBetween(Window.unboundedPreceding, -1)
    return requests.select("key", "request_id", "number", "seen_ms", end_ms().alias("end_ms")).withColumn(
        "before_ms", F.max("end_ms").over(earlier)
    )


def stretches(requests: DataFrame) -> DataFrame:
    """Return key, begin_ms, end_ms and requests of each stretch."""
    so_far = Window.partitionBy("key").orderBy(*ORDER).rowsBetween(Window.unboundedPreceding, Window.currentRow)
    apart = F.coalesce(F.col("seen_ms") - F.col("before_ms") >= MERGE_SECONDS * 1000, F.lit(True))
    return (
        gaps(requests)
        .withColumn("stretch", F.sum(apart.cast("long")).over(so_far))
        .groupBy("key", "stretch")
        .agg(F.min("seen_ms").alias("begin_ms"), F.max("end_ms").alias("end_ms"), F.count("*").alias("requests"))
    )
