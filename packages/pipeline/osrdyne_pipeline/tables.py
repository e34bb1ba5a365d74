"""All tables of a pool from its bronze one, by the engine that was chosen.

Made again from the same events, they are the same, row for row, by either engine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from osrdyne_pipeline import slices
from osrdyne_pipeline.lake import in_folder
from osrdyne_pipeline.recommendation.calls import Tables
from osrdyne_pipeline.small.engine import SmallEngine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from osrdyne_pipeline.store.opening import AnyLake

#: Called before each table: with its name, its number from 1, and how many there are.
Progress = Callable[[str, int, int], None]


def build(engine: SparkSession | SmallEngine, lake: AnyLake, progress: Progress) -> None:
    """Make every table after bronze again, as `slices` says. Raises LakeError where the lake cannot be used."""
    if not isinstance(engine, SmallEngine):
        from osrdyne_pipeline.spark.tables import SparkMaker  # only where there is a Spark

        slices.build(SparkMaker(engine), in_folder(lake), progress)
    else:
        slices.build(engine, lake, progress)


def shown(engine: SparkSession | SmallEngine, lake: AnyLake, *names: str) -> Tables:
    """Let an engine's queries know tables of the lake by the last part of their names."""
    if isinstance(engine, SmallEngine):
        engine.show(lake, *names)
        return engine
    from osrdyne_pipeline.spark.rows import SparkTables  # only where there is a Spark

    tables = SparkTables(engine)
    tables.show(in_folder(lake), *names)
    return tables
