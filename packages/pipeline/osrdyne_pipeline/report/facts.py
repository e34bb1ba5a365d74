"""Ask the tables what the report says: small aggregates only, so that the page does not grow with the pool.

Reads gold tables, and of silver the number of events and of outcomes; writes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 -- everybody's name for it

from osrdyne_pipeline.report import content, numbers
from osrdyne_pipeline.report.element import shown
from osrdyne_protocol.statuses import OK

#: Keys that have a row of their own in the heat map, and in the latency split.
HEAT_KEYS = 20
LATENCY_KEYS = 7
#: Causes of failures that are listed.
CAUSES = 10
#: Columns that a chart over time has at most.
COLUMNS = 120

#: What is asked, one after the other.
PARTS = ("totals", "demand", "latency", "workers", "failures")

#: Told before each part: its name, the how manieth it is, and of how many.
Progress = Callable[[str, int, int], None]
#: Gives a table of the lake by its name; see schemas.TABLES.
Read = Callable[[str], DataFrame]


def gather(pool: str, read: Read, *, now_ms: int, progress: Progress) -> content.ReportContent:
    """Return what the tables say; without evidence, which is the recommendation's. `progress` is told of each part."""
    parts = ((part, number, len(PARTS)) for number, part in enumerate(PARTS, 1))
    progress(*next(parts))
    totals = _totals(read)
    progress(*next(parts))
    span = _span(read("gold/demand"))
    demand, heat = _demand(read, span), _heat(read, span, totals.keys)
    progress(*next(parts))
    cold, warm, slowest = _latency(read, cold=True), _latency(read, cold=False), _slowest(read)
    progress(*next(parts))
    worker_hours, forecast, delays = _worker_hours(read, span), _forecast(read), _delays(read)
    progress(*next(parts))
    causes, more = _causes(read)
    rejects = [(row[0], row[1]) for row in _sorted_counts(read("rejects"), "reason")]
    return content.ReportContent(
        pool=pool,
        made_ms=now_ms,
        span=span,
        totals=totals,
        rejects=rejects,
        demand=demand,
        heat=heat,
        cold_latency=cold,
        warm_latency=warm,
        worker_hours=worker_hours,
        classes=_classes(read),
        causes=causes,
        more_causes=more,
        slowest=slowest,
        forecast=forecast,
        delays=delays,
    )


def _totals(read: Read) -> content.Totals:
    outcome = F.col("outcome")
    requests = _one(
        read("silver/requests").agg(
            F.count("*").alias("requests"),
            F.count_if(outcome.isNotNull() & (outcome != OK)).alias("failed"),
            F.count_if(outcome.isNull()).alias("unknown"),
        )
    )
    cold = _one(
        read("gold/cold_starts").agg(
            F.sum("cold").alias("cold"), F.sum("waited_ms").alias("waited_ms"), F.max("worst_ms").alias("worst_ms")
        )
    )
    time = _one(read("gold/worker_hours").agg(F.sum("up_ms").alias("up_ms"), F.sum("busy_ms").alias("busy_ms")))
    keys = read("gold/key_classes").count()
    return content.Totals(events=read("silver/events").count(), keys=keys, **requests, **cold, **time)


def _one(rows: DataFrame) -> dict[str, int]:
    """Return the one row of totals; nothing at all is 0."""
    return {name: value or 0 for name, value in rows.collect()[0].asDict().items()}


def _span(demand: DataFrame) -> tuple[int, int] | None:
    first, last = demand.agg(F.min("hour_ms"), F.max("hour_ms")).collect()[0]
    return None if first is None else (first, last + numbers.HOUR_MS)


def bucket_days(span: tuple[int, int]) -> int:
    """Return how many days a column over time stands for; 0 for an hour."""
    days = (span[1] - span[0]) / numbers.DAY_MS
    return next((size for size in (0, 1, 7, 28) if days / (size or 1 / 24) <= COLUMNS), 364)


def _demand(read: Read, span: tuple[int, int] | None) -> content.Buckets | None:
    if span is None:
        return None
    return _over_time(
        read("gold/demand").select(
            F.col("hour_ms").alias("at"),
            F.col("cold").alias("first"),
            (F.col("requests") - F.col("cold")).alias("second"),
        ),
        span,
        bucket_days(span),
    )


def _worker_hours(read: Read, span: tuple[int, int] | None) -> content.Buckets | None:
    rows = read("gold/worker_hours").select(
        (F.unix_date("day").cast("long") * numbers.DAY_MS).alias("at"),
        (F.col("busy_ms") / numbers.HOUR_MS).alias("first"),
        (F.col("idle_ms") / numbers.HOUR_MS).alias("second"),
    )
    first, last = rows.agg(F.min("at"), F.max("at")).collect()[0]
    if first is None or span is None:
        return None
    return _over_time(rows, (first, last + numbers.DAY_MS), max(1, bucket_days(span)))


def _over_time(rows: DataFrame, span: tuple[int, int], days: int) -> content.Buckets:
    """Sum `first` and `second` by stretch of time of `at`; longer stretches than a day give the mean of a day."""
    size = days * numbers.DAY_MS if days else numbers.HOUR_MS
    begin = span[0] - span[0] % (numbers.DAY_MS if days else numbers.HOUR_MS)
    number = F.floor((F.col("at") - begin) / size).alias("number")
    sums = {
        row["number"]: (row["first"], row["second"])
        for row in rows.groupBy(number).agg(F.sum("first").alias("first"), F.sum("second").alias("second")).collect()
    }
    places = range(-(-(span[1] - begin) // size))
    # The last stretch may be cut off: its mean is one of the days that it has.
    parts = [max(1.0, min(size, span[1] - begin - place * size) / numbers.DAY_MS) if days else 1.0 for place in places]
    values = [[sums.get(place, (0, 0))[which] / parts[place] for place in places] for which in (0, 1)]
    name = numbers.day if days else numbers.moment
    return content.Buckets(days, [name(begin + place * size) for place in places], *values)


def _heat(read: Read, span: tuple[int, int] | None, keys: int) -> list[content.KeyHours]:
    if span is None:
        return []
    days = max(1, -(-span[1] // numbers.DAY_MS) - span[0] // numbers.DAY_MS)
    top = [row["key"] for row in _heaviest(read("gold/key_classes"), F.col("requests")).limit(HEAT_KEYS).collect()]
    # One that is not in the list is in the row of all others, whose name no key can have.
    row = F.when(F.col("key").isin(top), F.struct(F.lit(True), F.col("key")))
    hour = F.floor((F.col("hour_ms") % numbers.DAY_MS) / numbers.HOUR_MS).alias("hour")
    sums: dict[str | None, list[float]] = {}
    for found in read("gold/demand").groupBy(row.alias("row"), hour).agg(F.sum("requests").alias("n")).collect():
        name = found["row"][1] if found["row"] is not None else None
        sums.setdefault(name, [0.0] * 24)[found["hour"]] = found["n"] / days
    rows = [content.KeyHours(shown(key), sums[key]) for key in top if key in sums]
    if None in sums:
        rows.append(content.KeyHours(f"{keys - len(top):,} other keys", sums[None]))
    return rows


def _latency(read: Read, *, cold: bool) -> list[content.LatencySplit]:
    rows = read("gold/latency").where(F.col("cold") == cold)
    parts = ("orphan_ms", "start_ms", "queue_ms", "run_ms")
    sums = [F.sum(name).alias(name) for name in ("requests", *parts)]
    weight = F.col("orphan_ms") + F.col("start_ms") + F.col("queue_ms") if cold else F.col("requests")
    by_key = _heaviest(rows.groupBy("key").agg(*sums), weight).limit(LATENCY_KEYS).collect()
    whole = rows.agg(*sums).collect()[0]
    named = [("all keys", whole), *((shown(row["key"]), row) for row in by_key)]
    return [
        content.LatencySplit(name, row["requests"], *(row[part] / row["requests"] for part in parts))
        for name, row in named
        if row["requests"]
    ]


def _classes(read: Read) -> list[content.KeyClass]:
    rows = (
        read("gold/key_classes")
        .groupBy("class")
        .agg(F.count("*").alias("keys"), F.sum("requests").alias("requests"), F.sum("cold").alias("cold"))
    )
    return [content.KeyClass(*row) for row in rows.orderBy(F.desc("requests"), "class").collect()]


def _causes(read: Read) -> tuple[list[content.Cause], tuple[int, int]]:
    failures = read("gold/failures")
    number, requests = failures.agg(F.count("*"), F.coalesce(F.sum("requests"), F.lit(0))).collect()[0]
    fields = list(content.Cause.__dataclass_fields__)
    top = failures.orderBy(F.desc("requests"), "cause").limit(CAUSES).select(*fields).collect()
    listed = [content.Cause(**row.asDict()) for row in top]
    return listed, (number - len(listed), requests - sum(row.requests for row in listed))


def _slowest(read: Read) -> list[tuple[str, int, int]]:
    sums = read("gold/cold_starts").groupBy("key").agg(F.sum("cold").alias("cold"), F.sum("waited_ms").alias("waited"))
    rows = _heaviest(sums.where("waited > 0"), F.col("waited")).limit(3).collect()
    return [(shown(row["key"]), row["cold"], row["waited"]) for row in rows]


def _forecast(read: Read) -> content.Forecast | None:
    rows: list[Any] = read("gold/forecast").orderBy("class", "hour").limit(1000).collect()
    if not rows:
        return None
    hours = [
        content.HourForecast(
            row["class"], row["hour"], row["requests"], row["requests_high"], row["workers"], row["workers_high"]
        )
        for row in rows
    ]
    return content.Forecast(str(rows[0]["day"]), rows[0]["days_of_history"], hours)


def _delays(read: Read) -> list[tuple[int, int, int]]:
    sums = read("gold/keep_alive").groupBy("delay_ms").agg(F.sum("cold").alias("cold"), F.sum("up_ms").alias("up_ms"))
    return [(row["delay_ms"], row["cold"], row["up_ms"]) for row in sums.orderBy("delay_ms").limit(200).collect()]


def _heaviest(rows: DataFrame, weight: Column) -> DataFrame:
    """Sort so that the heaviest keys come first, always in the same order."""
    return rows.orderBy(weight.desc(), F.col("key"))


def _sorted_counts(rows: DataFrame, name: str) -> list[Any]:
    return rows.groupBy(name).agg(F.count("*").alias("n")).orderBy(F.desc("n"), name).limit(20).collect()
