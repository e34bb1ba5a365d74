"""The pipeline's measurements run, in short rounds, as the page of benchmarks shows it.

In a process of their own: Spark leaves sockets open to the end of the process that started it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

import java
import steps
from testbed.spark_cluster import FEW_ROWS


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_each_measurement_of_the_pipeline_returns_rows_and_finds_the_same_tables() -> None:
    java.ensure()
    names = ["pipeline-source", "pipeline-tables"]

    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "--quick", "--json", *names],
        cwd=steps.ROOT,
        env={**os.environ, "SPARK_SUBMIT_OPTS": FEW_ROWS},
        check=False,
        capture_output=True,
        text=True,
        timeout=1500,
    )

    assert done.returncode == 0, done.stderr[-3000:]
    said = json.loads(done.stdout)
    assert said["failed"] == []
    peers = {row["peer_name"] for row in said["rows"] if row["ratio"]}
    assert peers == {"bare pika consumer", "row-by-row source", "engine DuckDB", "DuckDB's SQL alone", "plain Python"}
