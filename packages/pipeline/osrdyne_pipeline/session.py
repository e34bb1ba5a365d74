"""The Spark session: from a laptop (`local[*]`, nothing to install but a Java) to a cluster that spark-submit names."""

from __future__ import annotations

import os
import sys

from pyspark.sql import SparkSession


def session(name: str, *, master: str | None = None, memory: str) -> SparkSession:
    """Return the session that this process has, or else a new one.

    `master` is a Spark master address; without, it is that of spark-submit, or `local[*]`. `memory`, such as `2g`, is
    the heap of Spark's Java. Within spark-submit that Java runs already, and what `--driver-memory` says counts. The
    settings below win over those of spark-submit.

    Workers run the Python that `PYSPARK_PYTHON` names, or else the one that runs this. Times are in UTC.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(name)
    if "SPARK_ENV_LOADED" not in os.environ:
        builder = (
            builder.master("local[*]")
            .config("spark.driver.memory", memory)
            # In a session of a minute, Java's second compiler took a third of the processor. With these limits, five or
            # ten times the default ones, it leaves out code that runs seldom. A Java that does not know an option
            # ignores it, and what `spark.driver.extraJavaOptions` says wins.
            .config(
                "spark.driver.defaultJavaOptions",
                "-XX:+IgnoreUnrecognizedVMOptions"
                " -XX:Tier4InvocationThreshold=25000 -XX:Tier4MinInvocationThreshold=3000"
                " -XX:Tier4CompileThreshold=75000 -XX:Tier4BackEdgeThreshold=400000",
            )
        )
        if (master or "local").startswith("local"):
            # What runs on this machine alone need not be reached from others.
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    if master is not None:
        builder = builder.master(master)
    return (
        builder.config("spark.sql.session.timeZone", "UTC")
        # Spark's 200 parts of a shuffle are too many for tables of a pool. Adaptive execution begins with 64, and joins
        # small ones; a plan that it does not change has 8.
        .config("spark.sql.adaptive.coalescePartitions.initialPartitionNum", "64")
        .config("spark.sql.shuffle.partitions", "8")
        .config("spark.sql.execution.arrow.pyspark.enabled", "true")
        .config("spark.sql.sources.partitionOverwriteMode", "dynamic")
        .config("spark.sql.parquet.compression.codec", "zstd")
        # A folder a day: to list some hundred of them is quicker than to start a task for each.
        .config("spark.sql.sources.parallelPartitionDiscovery.threshold", "4096")
        # All tables need more generated classes than the hundred that Spark keeps by default. What is not kept is
        # generated and compiled again.
        .config("spark.sql.codegen.cache.maxEntries", "1000")
        # Parquet's own sums of its pages show damage, in place of a file of sums beside each file.
        .config("spark.hadoop.fs.file.impl", "org.apache.hadoop.fs.RawLocalFileSystem")
        .config("spark.hadoop.parquet.page.verify-checksum.enabled", "true")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )
