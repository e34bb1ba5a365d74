"""Choose an engine and start it: Spark with clear words where it cannot, as without a Java or with one that is too old.

What Java says goes to a log file, which is kept where the command fails. Within spark-submit there is a Java already,
and Spark's own settings say where it logs. On Kubernetes it goes to the log of the driver's pod.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from osrdyne_pipeline.errors import PipelineError
from osrdyne_pipeline.lake import Lake, in_folder
from osrdyne_pipeline.small.engine import SmallEngine
from osrdyne_runtime.console.imports import extra
from osrdyne_runtime.console.output import CannotAsk

# Imported where it starts: that takes a second, and who has a small pool may not have it.
if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from osrdyne_pipeline.store.opening import AnyLake

AUTO, DUCKDB, SPARK = "auto", "duckdb", "spark"
ENGINES = (AUTO, DUCKDB, SPARK)
#: With more events than this, Spark is chosen: so many were measured, and their tables compared.
MOST_EVENTS = 10_000_000
#: Letters of Spark's error that are shown; the rest is in the log.
_LONGEST = 400

#: What Spark 4 asks for.
OLDEST_JAVA = 17


class CannotStart(PipelineError):
    """Spark cannot be started here."""


class Log:
    """The file that Java's words go to, while there is one."""

    path: Path | None = None

    @classmethod
    def hint(cls) -> str:
        """Return where to read more."""
        return f"more is in {cls.path}" if cls.path is not None else "more is in Spark's log"


class SparkFailed(PipelineError):
    """Spark could not do what it was asked for."""


def chosen(engine: str, master: str | None, lake: AnyLake) -> str:
    """Return `duckdb` or `spark`: what was asked for, or else what fits. Raises `CannotAsk` and `LakeError`.

    Spark does what is given to a cluster, what runs in a session of Spark, and pools with many events. Tables in an
    object store are made by DuckDB, however many they are.
    """
    if engine == DUCKDB and master is not None:
        raise CannotAsk("--master names a cluster of Spark, and --engine duckdb does without: give one of both")
    if not isinstance(lake, Lake) and engine != SPARK and master is None:
        return DUCKDB
    lake = in_folder(lake)
    if engine != AUTO:
        return engine
    if master is not None or "SPARK_ENV_LOADED" in os.environ or _session() is not None:
        return SPARK
    return SPARK if lake.rows("bronze") > MOST_EVENTS else DUCKDB


def _session() -> SparkSession | None:
    """Return the session that this process has."""
    if "pyspark.sql" not in sys.modules:
        return None
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession()


@contextlib.contextmanager
def started(
    name: str, lake: AnyLake, *, engine: str, master: str | None, memory: str
) -> Iterator[SparkSession | SmallEngine]:
    """Give the engine that was chosen, and end it. Raises `CannotAsk`, `CannotStart`, `LakeError` and `SparkFailed`."""
    if chosen(engine, master, lake) == DUCKDB:
        with duckdb(lake, memory) as given:
            yield given
    else:
        with spark(name, master=master, memory=memory) as session:
            yield session


@contextlib.contextmanager
def duckdb(lake: AnyLake, memory: str) -> Iterator[SmallEngine]:
    """Give DuckDB within this process, and end it. Raises `LakeError`, also for a lake that it cannot reach."""
    SmallEngine.check(lake)
    with SmallEngine.open(memory) as given:
        yield given


@contextlib.contextmanager
def spark(name: str, *, master: str | None, memory: str) -> Iterator[SparkSession]:
    """Give a session, and stop it, unless this process has one already. Raises `CannotStart` and `SparkFailed`."""
    with extra("osrdyne-pipeline[spark]"):
        from pyspark.errors import PySparkException
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]

    try:
        if (already := _session()) is not None:
            yield already
            return
        if "SPARK_ENV_LOADED" not in os.environ:
            check_java()
        made = _start(name, master, memory)
        made.sparkContext.setLogLevel("ERROR")
        try:
            yield made
        finally:
            made.stop()
    except (PySparkException, Py4JError) as error:
        raise SparkFailed(_words(error)) from error
    if Log.path is not None:
        Log.path.unlink(missing_ok=True)
        Log.path = None


def java_version() -> int | None:
    """Return the major version of the Java that Spark would run; None where there is none."""
    home = os.environ.get("JAVA_HOME")
    command = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if command is None:
        return None
    try:
        done = subprocess.run([command, "-version"], check=False, capture_output=True, text=True)
    except OSError:
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', done.stderr + done.stdout)
    return int(found.group(1)) if found else None


def check_java() -> None:
    """Raise `CannotStart`, with what to do, where there is no Java that Spark can run."""
    where = f"JAVA_HOME is {os.environ['JAVA_HOME']}" if os.environ.get("JAVA_HOME") else "java on PATH"
    what = f"install Java {OLDEST_JAVA} or later (Debian: default-jre-headless), on PATH or named in JAVA_HOME"
    version = java_version()
    what += "; or do without, by --engine duckdb"
    if version is None:
        raise CannotStart(f"Spark needs a Java, and there is none here ({where}): {what}")
    if version < OLDEST_JAVA:
        raise CannotStart(f"Spark needs Java {OLDEST_JAVA} or later, and this one is {version} ({where}): {what}")


def _start(name: str, master: str | None, memory: str) -> SparkSession:
    from pyspark.errors import PySparkRuntimeError

    from osrdyne_pipeline.session import session

    # A file of a pod goes with the pod, before it is read: there, all goes to the pod's log.
    if "SPARK_ENV_LOADED" in os.environ or (master or "").startswith("k8s:"):
        return session(f"osrdyne-pipeline {name}", master=master, memory=memory)
    handle, path = tempfile.mkstemp(prefix="osrdyne-pipeline-", suffix=".log")
    Log.path = Path(path)
    saved = os.dup(2)
    try:
        # Java inherits standard error from this process, and says a good deal when it starts.
        os.dup2(handle, 2)
        return session(f"osrdyne-pipeline {name}", master=master, memory=memory)
    except PySparkRuntimeError as error:
        raise CannotStart(f"Spark's Java ended before it was ready; {Log.hint()}") from error
    except Exception as error:
        raise CannotStart(f"Spark cannot be started ({_line(error)}); {Log.hint()}") from error
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(handle)


def _line(error: Exception) -> str:
    match = re.search(r"(?:Exception|Error): ([^\n]+)", str(error))
    return match.group(1) if match else next(iter(str(error).splitlines()), type(error).__name__)


def _words(error: Exception) -> str:
    """Return what a person needs of Spark's error: its own words, without those of Java."""
    text = str(error)
    if "OutOfMemoryError" in text:
        by = "--driver-memory or --executor-memory of spark-submit" if "SPARK_ENV_LOADED" in os.environ else "--memory"
        return f"Java ran out of memory: give more by {by}; {Log.hint()}"
    match = re.search(r"(?:Caused by: )?[\w.]+(?:Exception|Error): ([^\n]+)", text)
    first = match.group(1) if match else next(iter(text.splitlines()), type(error).__name__)
    return f"Spark could not do it: {first[:_LONGEST]}; {Log.hint()}"
