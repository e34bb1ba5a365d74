"""Rows of the lake's tables as Spark has them: their schemas, and how they are read, written and asked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- the usual name for it
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructField, StructType

from osrdyne_pipeline.errors import LakeError
from osrdyne_pipeline.lake import BY_DAY, Lake
from osrdyne_pipeline.schemas import TABLES

#: Option of Spark's readers: brackets and stars in a path stand for themselves.
LITERAL = {"__globPaths__": "false"}


def of_arrow(schema: pa.Schema) -> StructType:
    """Return a schema in Spark's words."""
    made: StructType = from_arrow_schema(schema)
    return made


def read_rows(spark: SparkSession, name: str, folder: Path | None) -> DataFrame:
    """Return the rows of the table `name` that are in a folder; none where there is no folder."""
    # As files have it: Parquet does not keep that a value is required.
    schema = StructType([StructField(field.name, field.dataType, True) for field in of_arrow(TABLES[name])])
    if folder is None:
        return spark.createDataFrame([], schema)
    return spark.read.options(**LITERAL).schema(schema).parquet(str(folder)).select(*schema.names)


def write_rows(name: str, rows: DataFrame, folder: Path) -> None:
    """Write rows of the table `name` as Parquet files into a folder, by day where the table is kept so."""
    rows = enforced(name, rows)
    writer = rows.hint("rebalance", "day").write.partitionBy("day") if name in BY_DAY else rows.write
    writer.mode("append").parquet(str(folder))


def enforced(name: str, rows: DataFrame) -> DataFrame:
    """Return `rows` in the order of the table's columns; a required column without a value fails the job.

    Raises `LakeError` where columns are missing, of another type, or not the table's.
    """
    schema = of_arrow(TABLES[name])
    have = {field.name: field.dataType for field in rows.schema.fields}
    want = {field.name: field.dataType for field in schema.fields}
    wrong = [f"no column {column}" for column in want if column not in have]
    wrong += [f"{column} is not a column of it" for column in have if column not in want]
    wrong += [
        f"{column} is {have[column].simpleString()}, not {type_.simpleString()}"
        for column, type_ in want.items()
        if column in have and have[column] != type_
    ]
    if wrong:
        raise LakeError(f"these rows do not fit the table {name}: {'; '.join(wrong)}")
    return rows.select(*(_required(name, field) if not field.nullable else F.col(field.name) for field in schema))


def _required(name: str, field: StructField) -> Column:
    message = F.lit(f"table {name}: a row without {field.name}, which is required")
    value = F.col(field.name)
    return F.when(value.isNull(), F.raise_error(message).cast(field.dataType)).otherwise(value).alias(field.name)


class SparkTables:
    """Tables of the lake that a session's queries know by the last part of their names."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark

    def show(self, lake: Lake, *names: str, prefix: str = "") -> None:
        """Let queries know tables of the lake; without rows where there are none."""
        for name in names:
            lake.read(self.spark, name).createOrReplaceTempView(prefix + name.rpartition("/")[2])

    def table(self, query: str) -> pa.Table:
        """Return the rows of a query."""
        return self.spark.sql(query).toArrow()

    @contextmanager
    def kept(self, name: str, query: str) -> Iterator[None]:
        """Let queries know the rows of a query by a name meanwhile, so that they are computed once."""
        found = self.spark.sql(query).persist(StorageLevel.DISK_ONLY)
        try:
            found.createOrReplaceTempView(name)
            yield
        finally:
            found.unpersist()
            self.spark.catalog.dropTempView(name)
