"""The pipeline as a package on a standalone cluster of two workers, as docs/howto/pipeline-cluster.md shows it. The
driver's Python has none of our code but what spark-submit sends, and executors have no Python.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest

import java
import steps
from testbed.spark_cluster import BIN, EXECUTOR_MEMORY, SparkCluster
from tests.pipeline.small_history import EVENTS, REQUESTS, write

PAGE = Path(steps.ROOT, "docs/howto/pipeline-cluster.md").read_text()
MEMORY = f"--driver-memory {EXECUTOR_MEMORY} --executor-memory {EXECUTOR_MEMORY} --executor-cores 1"

#: How a command is run whose words a test reads.
CAUGHT: dict[str, Any] = {"capture_output": True, "text": True}


def script() -> str:
    """The commands of the page for such a cluster, its first ones."""
    block, *_ = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    return str(block)


def placed(text: str, cluster: SparkCluster, shared: Path) -> str:
    """The script for this cluster: little memory, no network, and its own places for what is shared."""
    text = text.replace("uv build", "uv build --quiet --offline --no-build-isolation").replace("dist", f"{shared}/dist")
    text = text.replace("--master spark://head:7077", f"--master {cluster.master} {MEMORY}")
    text = re.sub("/shared/events$", f"{shared}/events --json > {shared}/ingest.json", text, flags=re.MULTILINE)
    text = re.sub("/shared/lake$", f"{shared}/lake --json > {shared}/tables.json", text, flags=re.MULTILINE)
    return text.replace("/shared/", f"{shared}/")


def document_in(file: Path) -> dict[str, Any]:
    """The document of a command, before which spark-submit puts what the command wrote to standard error."""
    text = file.read_text()
    return dict(json.loads(text[text.index("{") :]))


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_tables_are_made_on_two_workers_without_python_from_packages_alone(tmp_path: Path) -> None:
    java.ensure()
    (tmp_path / "events").mkdir()
    write(tmp_path / "events/small.jsonl")
    # Python without the files by which site-packages names our checkout (-S), but with the libraries in it.
    bare = tmp_path / "python"
    libraries = sysconfig.get_path("purelib")
    bare.write_text(
        f'#!/bin/sh\nPYTHONPATH="${{PYTHONPATH:+$PYTHONPATH:}}{libraries}" exec "{sys.executable}" -S "$@"\n'
    )
    bare.chmod(0o755)
    with SparkCluster() as cluster:
        variables = {
            **cluster.environment,
            "PATH": f"{BIN}:{cluster.environment['PATH']}",
            "PYSPARK_DRIVER_PYTHON": str(bare),
            "PYSPARK_PYTHON": "/bin/false",
        }
        alone = subprocess.run(
            [bare, "-c", "import pyspark, osrdyne_pipeline"], env=variables, cwd=tmp_path, check=False, **CAUGHT
        )
        assert "No module named 'osrdyne_pipeline'" in alone.stderr
        text = placed(script(), cluster, tmp_path)

        done = subprocess.run(["bash", "-ec", text], env=variables, cwd=steps.ROOT, timeout=1500, check=False, **CAUGHT)

        assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-3000:]}\n{cluster.logs()}"
        # Both workers took part, with what was sent.
        sent = {path.relative_to(cluster.folder).parts[0] for path in cluster.folder.glob("work-*/app-*/*/*.zip")}
        assert sent == {"work-0", "work-1"}
    assert document_in(tmp_path / "ingest.json")["events"] == EVENTS
    assert document_in(tmp_path / "tables.json")["rows"]["silver/requests"] == REQUESTS
    read = ds.dataset(tmp_path / "lake/core/silver/requests", format="parquet", partitioning="hive")
    assert read.count_rows() == REQUESTS
    shutil.rmtree(tmp_path / "dist")
