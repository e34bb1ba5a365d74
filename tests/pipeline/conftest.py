"""Fixtures of the pipeline's tests: one small Spark session a run, and a lake a test."""

from __future__ import annotations

import gc
import os
import secrets
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import java
from osrdyne_pipeline.lake import Lake
from osrdyne_pipeline.session import session
from osrdyne_pipeline.small.engine import SmallEngine
from testbed.broker import Broker
from testbed.pool import Pool
from testbed.spark_cluster import FEW_ROWS
from tests.pipeline.small_history import record, rows


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Spark's Python side leaves the sockets by which rows came to the garbage collector."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))


@pytest.fixture(scope="session", autouse=True)
def collected_at_the_end() -> Iterator[None]:
    """Let what commands froze be collected: each freezes as if the process were its own, and DuckDB reports leaks."""
    yield
    gc.unfreeze()


@pytest.fixture(autouse=True)
def duckdb_without_spark(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have commands of a test that asks for no session take DuckDB: they would take the session of other tests."""
    if "spark" not in request.fixturenames:
        monkeypatch.setenv("OSRDYNE_PIPELINE_ENGINE", "duckdb")


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The run's session: two cores, half a gigabyte. Do not stop it, do not change its settings."""
    java.ensure()
    os.environ["SPARK_SUBMIT_OPTS"] = FEW_ROWS
    on_ctrl_c = signal.getsignal(signal.SIGINT)
    made = session("osrdyne-tests", master="local[2]", memory="512m")
    signal.signal(signal.SIGINT, on_ctrl_c)  # Spark takes it for as long as the process lives
    made.sparkContext.setLogLevel("ERROR")
    # A few rows in 64 parts are 64 tasks of nothing.
    made.conf.set("spark.sql.adaptive.coalescePartitions.initialPartitionNum", "2")
    made.conf.set("spark.sql.shuffle.partitions", "2")
    yield made
    gateway = made.sparkContext._gateway
    made.stop()
    # Spark leaves its JVM to the end of the process; a run of tests leaves nothing.
    if gateway is not None:
        gateway.shutdown()
        if (process := getattr(gateway, "proc", None)) is not None:
            process.stdin.close()
            process.wait(60)


@pytest.fixture
def engine() -> Iterator[SmallEngine]:
    """A DuckDB of the test's own."""
    with SmallEngine.open("1g") as opened:
        yield opened


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """An empty lake of the pool `core`, in a folder whose name Spark would take for a pattern."""
    return Lake(tmp_path / "lake [a-z]*{x,y}?", "core")


@pytest.fixture
def stream_pool(one_broker: Broker) -> Iterator[Pool]:
    """A pool whose stream holds no event yet. One version of the broker is enough."""
    vhost = f"pipeline-{secrets.token_hex(4)}"
    one_broker.management.add_vhost(vhost, one_broker.admin)
    pool = Pool.on(one_broker, vhost)
    try:
        yield pool
    finally:
        pool.remove_users()
        one_broker.management.delete("vhosts", vhost)


@pytest.fixture
def uri_file(stream_pool: Pool, tmp_path: Path) -> Path:
    """The address of a pool's monitor, whose stream holds a few events."""
    record(stream_pool, rows())
    file = tmp_path / "monitor.uri"
    file.write_text(stream_pool.uri(stream_pool.users.monitor))
    return file
