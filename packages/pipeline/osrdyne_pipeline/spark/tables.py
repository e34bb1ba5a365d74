"""All tables of a pool from its bronze one, by Spark, in order: silver from bronze, gold from silver.

Each table is written whole and read back for the next, so that each is computed once, and memory is bounded by Spark's
settings whatever the number of events.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from pyspark.sql import DataFrame

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
from osrdyne_pipeline.silver.events import events
from osrdyne_pipeline.silver.lives import lives
from osrdyne_pipeline.silver.requests import requests
from osrdyne_pipeline.spark.rows import SparkTables

#: Name -> how it is made, and of which tables, all of them further up.
STEPS: dict[str, tuple[Callable[..., DataFrame], tuple[str, ...]]] = {
    "silver/events": (events, ("bronze",)),
    "silver/requests": (requests, ("silver/events",)),
    "silver/lives": (lives, ("silver/events", "silver/requests")),
    "gold/demand": (demand, ("silver/requests",)),
    "gold/cold_starts": (cold_starts, ("silver/requests", "silver/lives")),
    "gold/latency": (latency, ("silver/requests",)),
    "gold/worker_hours": (worker_hours, ("silver/lives",)),
    "gold/failures": (failures, ("silver/requests", "silver/events")),
    "gold/causes": (causes, ("silver/events",)),
    "gold/starts": (starts, ("silver/events",)),
    "gold/bill": (bill, ("silver/requests", "gold/worker_hours")),
    "gold/key_classes": (key_classes, ("silver/requests",)),
    "gold/forecast": (forecast, ("gold/demand", "gold/key_classes")),
    "gold/keep_alive": (keep_alive, ("silver/requests", "gold/key_classes")),
}


class SparkMaker(SparkTables):
    """Makes tables; see `slices`. What is kept is kept by the executors: where one is lost, so is the run."""

    def keep(self, name: str, query: str) -> None:
        """Let queries know the rows of a query as they are now."""
        self.spark.sql(query).localCheckpoint().createOrReplaceTempView(name)

    def make(self, name: str) -> None:
        """Let queries know as `making` what the tables that they know make of a table."""
        make, sources = STEPS[name]
        make(*(self.spark.table(source.rpartition("/")[2]) for source in sources)).createOrReplaceTempView("making")

    def write(self, lake: Lake, name: str, query: str, days: Collection[str] | None = None) -> None:
        """Replace a table of the lake, or some days of it, by the rows of a query."""
        lake.write(name, self.spark.sql(query), days)
