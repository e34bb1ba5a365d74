"""Histories for the tests: events as a stream would have them, and every table made of them at once."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from benchmarks.sides import pipeline_plain as plain
from benchmarks.sides import pipeline_plain_gold as gold
from benchmarks.sides.pipeline_plain import Event, day_of
from osrdyne_pipeline.lake import Lake
from osrdyne_pipeline.questions.bill import bill
from osrdyne_pipeline.questions.causes import causes, starts
from osrdyne_pipeline.questions.cold_starts import cold_starts
from osrdyne_pipeline.questions.demand import demand
from osrdyne_pipeline.questions.failures import failures
from osrdyne_pipeline.questions.forecast import forecast
from osrdyne_pipeline.questions.key_classes import key_classes
from osrdyne_pipeline.questions.latency import latency
from osrdyne_pipeline.questions.worker_hours import worker_hours
from osrdyne_pipeline.recommendation.candidates import keep_alive
from osrdyne_pipeline.schemas import BRONZE
from osrdyne_pipeline.silver.events import events
from osrdyne_pipeline.silver.lives import lives
from osrdyne_pipeline.silver.requests import requests
from osrdyne_pipeline.slices import build
from osrdyne_pipeline.small.engine import QUERIES, SmallEngine, short
from osrdyne_pipeline.spark.rows import of_arrow
from osrdyne_protocol import events as names

HOUR = 3_600_000
DAY = 24 * HOUR
#: A Monday at midnight, in UTC.
MONDAY = 20_000 * DAY + 4 * DAY

Row = dict[str, Any]


def made_small(lake: Lake, history: Iterable[Event]) -> dict[str, list[tuple[Any, ...]]]:
    """Make every table of a history in a lake, without Spark, and read them: by name, as `Tables.tuples` has them."""
    with SmallEngine.open("1g") as engine:
        engine.connection.register("history", _as_bronze(history))
        with lake.version("bronze") as aside:
            engine.copy("bronze", "from history", aside / "batch=written")
        build(engine, lake, lambda *_: None)
    return read_small(lake)


def add(lake: Lake, batch: str, history: Iterable[Event]) -> None:
    """Add events to a lake's bronze, as an ingest does."""
    with SmallEngine.open("1g") as engine:
        engine.connection.register("history", _as_bronze(history))
        if not lake.exists("bronze"):
            with lake.version("bronze"):
                pass
        engine.copy("bronze", "from history", lake.path("bronze") / f"batch={batch}")


def _as_bronze(history: Iterable[Event]) -> pa.Table:
    given = [(*event, day_of(event.time_ms)) for event in history]
    return pa.table([[row[place] for row in given] for place in range(len(BRONZE))], schema=BRONZE)


def read_small(lake: Lake) -> dict[str, list[tuple[Any, ...]]]:
    """Read every table of a lake, as `made_small` gives them."""
    found: dict[str, list[tuple[Any, ...]]] = {}
    with SmallEngine.open("1g") as engine:
        for name in QUERIES:
            engine.show(lake, name)
            rows = engine.rows(f"from {short(name)}")
            found[short(name)] = ordered(tuple(map(_listed, row.values())) for row in rows)
    return found


def made_plainly(history: Sequence[Event]) -> dict[str, list[tuple[Any, ...]]]:
    """Make the tables of a history, but `keep_alive`, in plain Python."""
    distinct = plain.events_of(history)
    asked = plain.requests_of(distinct)
    lived = plain.lives_of(distinct, asked)
    by_hour, classes, hours = gold.demand_of(asked), gold.key_classes_of(asked), gold.worker_hours_of(lived)
    rows: dict[str, Sequence[Sequence[object]]] = {
        "events": [(*event, day_of(event.time_ms)) for event in distinct],
        "requests": asked,
        "lives": lived,
        "demand": by_hour,
        "cold_starts": gold.cold_starts_of(asked, lived),
        "latency": gold.latency_of(asked),
        "worker_hours": hours,
        "failures": gold.failures_of(asked, distinct),
        "causes": gold.causes_of(distinct),
        "starts": gold.starts_of(distinct),
        "bill": gold.bill_of(asked, hours),
        "key_classes": classes,
        "forecast": gold.forecast_of(by_hour, classes),
    }
    return {name: ordered(found) for name, found in rows.items()}


def _listed(value: Any) -> Any:
    return [tuple(part.values()) for part in value] if isinstance(value, list) else value


def bronze(spark: SparkSession, history: Iterable[Event]) -> DataFrame:
    """BRONZE of a history."""
    return spark.createDataFrame([(*entry, day_of(entry.time_ms)) for entry in history], of_arrow(BRONZE))


class Pool:
    """Writes a history down: every call of an event's name is one more event."""

    def __init__(self) -> None:
        self.history: list[Event] = []

    def tell(self, key: str, event: str, time_ms: int, request_id: str | None = None, **said: Any) -> None:
        number = len(self.history)
        self.history.append(
            Event("stream", number, key, event, f"{number:032x}", time_ms, request_id=request_id, **said)
        )

    def key(self, key: str) -> Callable[..., None]:
        """Return `tell` for one key, with times from MONDAY on."""
        return lambda event, at, request_id=None, **said: self.tell(key, event, MONDAY + at, request_id, **said)


@dataclass(frozen=True)
class Tables:
    """Every table, as rows."""

    rows: dict[str, list[Row]]

    def of(self, name: str, **wanted: Any) -> list[Row]:
        """Rows of a table in which these columns have these values, sorted."""
        found = [row for row in self.rows[name] if all(row[column] == value for column, value in wanted.items())]
        return sorted(found, key=repr)

    def one(self, name: str, **wanted: Any) -> Row:
        (row,) = self.of(name, **wanted)
        return row

    def tuples(self, name: str) -> list[tuple[Any, ...]]:
        """All rows as sorted tuples."""
        return ordered(tuple(row.values()) for row in self.rows[name])


def ordered(rows: Iterable[Sequence[Any]]) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in rows), key=repr)


def made_of(spark: SparkSession, history: Iterable[Event]) -> Tables:
    """Make every table of a history."""
    distinct = events(bronze(spark, history)).cache()
    asked = requests(distinct).cache()
    lived = lives(distinct, asked).cache()
    by_hour = demand(asked).cache()
    classes = key_classes(asked).cache()
    frames = {
        "events": distinct,
        "requests": asked,
        "lives": lived,
        "demand": by_hour,
        "cold_starts": cold_starts(asked, lived),
        "latency": latency(asked),
        "worker_hours": worker_hours(lived),
        "failures": failures(asked, distinct),
        "causes": causes(distinct),
        "starts": starts(distinct),
        "bill": bill(asked, worker_hours(lived)),
        "key_classes": classes,
        "forecast": forecast(by_hour, classes),
        "keep_alive": keep_alive(asked, classes),
    }
    rows = {name: [_plain(row.asDict()) for row in frame.collect()] for name, frame in frames.items()}
    for frame in (distinct, asked, lived, by_hour, classes):
        frame.unpersist()
    return Tables(rows)


def _plain(row: Row) -> Row:
    return {name: [tuple(item) for item in value] if isinstance(value, list) else value for name, value in row.items()}


#: Events and what they may say, as random histories draw them: whatever order comes of it.
_SAID: tuple[tuple[str, Sequence[str | None]], ...] = (
    (names.ORPHAN_SEEN, (None,)),
    (names.FORWARDED, (None,)),
    (names.REQUEST_RECEIVED, (None,)),
    (names.REQUEST_RECEIVED, (None,)),
    (names.FINISHED, ("ok", "ok", "ok", "error", "requeued", None)),
    (names.FINISHED, ("ok",)),
    (names.DEAD_LETTERED, ("expired", "delivery_limit")),
    (names.STARTED, (None,)),
    (names.GROUP_STARTED, (None,)),
    (names.GROUP_STOPPED, ("idle", "stuck: requests are ready")),
    (names.UNBOUND, (None,)),
    (names.QUEUE_READY, (None,)),
    (names.QUEUE_DELETED, (None,)),
    (names.ALIVE, (None,)),
    (names.STOPPING, (None,)),
    (names.REPLAYED, ("delivery_limit",)),
    (names.WORKER_ENDED, ("exit 1", "stopped", "memory", None, "")),
    (names.START_FAILED, ("no-start",)),
)
_CALLERS = (None, "", "anna", "ben", "空港", "core-daemon")
_DETAILS = (None, "", "stopped: idle", "stopped: stuck: requests are ready", "worker exited with status 1")
_ERRORS = (None, "", "KeyError", "a.b.FooError", "x" * 150)
_LOGS = (None, "/var/log/w.log", "y" * 300)
#: Last lines of workers, and what is almost like them.
_OUTPUTS = (
    *(None, "", "loading\nKeyError: '9'", "x.y_1.BadError: é\nKeyErrors: no\n \t\r\n", "FooError\r\nnothing", "A\n\n"),
    *("FooError\n  FooError: in\nGoError", "a.B.CExit", "é" * 300, "SystemExit: 3\nbye\n", "1Error: x\n_Error: y"),
)


def random_history(seed: int, *, keys: int, events_of_a_key: int) -> list[Event]:
    """Events that no daemon would send in such an order: the tables must be right for what was, not for what should be.

    Times lie close together, so that many are the same, and across three midnights.
    """
    chance = random.Random(seed)
    history = []
    for number in range(keys * events_of_a_key):
        event, outcomes = chance.choice(_SAID)
        near_midnight = MONDAY + chance.randrange(4) * DAY + chance.randrange(-8, 8) * chance.choice((1, 40, HOUR))
        history.append(
            Event(
                chance.choice(("one.parquet", "two.parquet")),
                number,
                f"key-{chance.randrange(keys)}",
                event,
                f"{chance.getrandbits(128):032x}",
                near_midnight,
                chance.choice((None, "w1", "w2")),
                chance.choice((None, "", "a", "b", "1234")),
                chance.choice(outcomes),
                caller=chance.choice(_CALLERS),
                error=chance.choice(_ERRORS),
                detail=chance.choice(_DETAILS),
                output=chance.choice(_OUTPUTS),
                log=chance.choice(_LOGS),
                began=chance.choice((None, 0, 1, 2)),
            )
        )
    return history


def long_history(seed: int) -> list[Event]:
    """A random history of a dozen days, of few keys."""
    chance = random.Random(seed)
    history = random_history(seed, keys=chance.choice((1, 3, 8)), events_of_a_key=40)
    return [event._replace(time_ms=event.time_ms + chance.randrange(10) * DAY) for event in history]


def the_day(number: int) -> date:
    """The day so many days after MONDAY."""
    return day_of(MONDAY + number * DAY)
