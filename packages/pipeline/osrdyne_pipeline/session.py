"""The Spark session: from a laptop (`local[*]`, nothing to install but a Java) to a cluster that spark-submit names."""

from __future__ import annotations

import os
import sys

from pyspark.sql import SparkSession

#: The driver's heap, unless an option says otherwise: it bounds memory in local mode.
DEFAULT_MEMORY = "2g"


def session(name: str, *, master: str | None = None, memory: str = DEFAULT_MEMORY) -> SparkSession:
    """Return the session; within spark-submit, the one that it configured.

    `master` is a Spark master address, `local[*]` where neither it nor spark-submit names one. Workers run the Python
    that runs this. Adaptive execution chooses how few parts a shuffle has; times are in UTC.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(name)
    if "SPARK_ENV_LOADED" not in os.environ and (master or "local").startswith("local"):
        # What runs on this machine alone need not be reached from others.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    if master is not None or "SPARK_ENV_LOADED" not in os.environ:
        builder = builder.master(master or "local[*]")
    return (
        builder.config("spark.driver.memory", memory)
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.adaptive.coalescePartitions.initialPartitionNum", "64")
        .config("spark.sql.shuffle.partitions", "8")
        .config("spark.sql.execution.arrow.pyspark.enabled", "true")
        .config("spark.sql.sources.partitionOverwriteMode", "dynamic")
        .config("spark.sql.parquet.compression.codec", "zstd")
        # A folder a day: to list some hundred of them is quicker than to start a task for each.
        .config("spark.sql.sources.parallelPartitionDiscovery.threshold", "4096")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )
