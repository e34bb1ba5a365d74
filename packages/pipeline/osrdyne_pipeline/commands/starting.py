"""Start Spark, with clear words where it cannot: no Java, one that is too old, one that ends at once.

What Java says goes to a log file, which is kept where the command fails. Within spark-submit there is a Java already,
and Spark's own settings say where it logs.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from osrdyne_pipeline.errors import PipelineError
from osrdyne_pipeline.session import session

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


@contextlib.contextmanager
def spark(name: str, *, master: str | None, memory: str) -> Iterator[SparkSession]:
    """Give a session, and stop it, unless this process has one already. Raises `CannotStart`."""
    if (already := SparkSession.getActiveSession()) is not None:
        yield already
        return
    if "SPARK_ENV_LOADED" in os.environ:
        made = session(f"osrdyne-pipeline {name}", master=master, memory=memory)
    else:
        check_java()
        made = _start(name, master, memory)
    made.sparkContext.setLogLevel("ERROR")
    try:
        yield made
    finally:
        made.stop()
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
    if version is None:
        raise CannotStart(f"Spark needs a Java, and there is none here ({where}): {what}")
    if version < OLDEST_JAVA:
        raise CannotStart(f"Spark needs Java {OLDEST_JAVA} or later, and this one is {version} ({where}): {what}")


def _start(name: str, master: str | None, memory: str) -> SparkSession:
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
    said = re.search(r"(?:Exception|Error): ([^\n]+)", str(error))
    return said.group(1) if said else next(iter(str(error).splitlines()), type(error).__name__)
