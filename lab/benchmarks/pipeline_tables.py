"""From files of events to tables: the pipeline's two engines, DuckDB's SQL alone, and one thread of plain Python.

The events are those of `osrdyne replay` for the flights by destination; a busier year of the same kind is what
`examples.airports.calls --scale` makes of it. They are made once a machine, which takes minutes, and kept. Each side is
a process of its own, one after the other; what they made is compared, row for row. Seconds are without the start
of Java; those of Spark are of a session that has made the tables once before. Memory is the peak of what a process and
its children hold, shared pages in parts.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa

from benchmarks.ratios import Row, Spread, Target, compared
from benchmarks.rig import Rig
from benchmarks.sides.pipeline_duckdb import QUERIES
from benchmarks.sides.pipeline_ours import POOL
from osrdyne_pipeline.commands import starting
from osrdyne_pipeline.source import values
from testbed import ROOT

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "osrdyne", "bench-events")
#: The memory of the pipeline's engines; it does not grow with the events.
MEMORY = "2g"
#: Seconds between two looks at how much memory is held.
_LOOK_SECONDS = 0.5
#: Columns that say where an event was found, which sides number in their own ways.
_PLACES = {"events": 'exclude (source, "offset")'}


@dataclass(frozen=True)
class Size:
    """How many events: so many worlds of so many days."""

    name: str
    scale: int
    days: int


SIZES = (Size("1 million", 1, 126), Size("3 million", 1, 366), Size("10 million", 4, 318))
QUICK_SIZES = (Size("80 thousand", 1, 10),)
#: Side -> its module, and what is said to it after its folders.
SIDES = {
    "spark": ("pipeline_ours", ["spark", MEMORY]),
    "small": ("pipeline_ours", ["duckdb", MEMORY]),
    "duckdb": ("pipeline_duckdb", []),
    "plain": ("pipeline_plain_run", []),
}


@dataclass(frozen=True)
class Cost:
    """What one side needed: seconds, and MiB at its peak."""

    seconds: float
    peak: float
    printed: dict[str, Any]


def measure(rig: Rig) -> list[Row]:
    """Return the rows of each size, of one round: times, memory, and the start of Java.

    Raises `CannotStart` without a Java, and AssertionError where the sides' tables differ.
    """
    starting.check_java()
    return [row for size in (QUICK_SIZES if rig.quick else SIZES) for row in _measure(rig, size)]


def _measure(rig: Rig, size: Size) -> list[Row]:
    events = _events(rig, size)
    with tempfile.TemporaryDirectory(prefix="osrdyne-bench-") as folder:
        spark, small, duck, plain = (_run(rig, size, side, events, Path(folder, side)) for side in SIDES)
        _compare(Path(folder))
    name = f"{size.name} events to tables"
    return [
        compared(f"{name}, Spark", "s", [spark.seconds], [small.seconds], "engine DuckDB", Target(3, at_most=True)),
        compared(f"{name}, Spark at first", "s", [spark.printed["first"]], [small.seconds], "engine DuckDB"),
        compared(f"{name}, Spark", "s", [spark.seconds], [plain.seconds], "plain Python", Target(0.2, at_most=True)),
        compared(f"{name}, engine DuckDB", "s", [small.seconds], [duck.seconds], "DuckDB's SQL alone"),
        compared(f"{name}, memory with Spark", "MiB", [spark.peak], [plain.peak], "plain Python"),
        compared(f"{name}, memory with DuckDB", "MiB", [small.peak], [plain.peak], "plain Python"),
        Row(measure=f"{name}, start of Java", unit="s", ours=Spread.of([spark.printed["start"]])),
    ]


def _events(rig: Rig, size: Size) -> Path:
    """Return the folder of a size's events, which are made where there are none yet."""
    home = CACHE / f"{size.scale}-{size.days}"
    if home.is_dir():
        return home
    rig.progress(f"making {size.name} events, once a machine")
    new = home.with_name(f"{home.name}.new")
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    calls, lines = new / "calls.csv", new / "events.jsonl"
    python = [sys.executable, "-m"]
    how = ["--scale", str(size.scale), "--days", str(size.days), "--out", str(calls)]
    _quietly([*python, "examples.airports.calls", "--key", "dest", *how])
    _quietly([*python, "osrdyne.cli", "replay", "--calls", str(calls), "--out", str(lines), "--json"])
    columns = {field.name: "bigint" if pa.types.is_integer(field.type) else "varchar" for field in values.COLUMNS}
    import duckdb  # only where it is used; see sides/pipeline_duckdb.py

    with duckdb.connect() as connection:
        connection.execute("set enable_progress_bar = false")
        rows = f"from read_json('{lines}', columns = {columns})"
        connection.execute(f"copy ({rows}) to '{new}/events.parquet' (format parquet, compression zstd)")
    calls.unlink()
    lines.unlink()
    new.rename(home)
    return home


def _quietly(command: list[str]) -> None:
    subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.DEVNULL)


def _run(rig: Rig, size: Size, side: str, events: Path, out: Path) -> Cost:
    out.mkdir()
    module, words = SIDES[side]
    command = [sys.executable, "-m", f"benchmarks.sides.{module}", str(events), str(out), *words]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        peak = _Peak(process.pid)
        try:
            output, _ = process.communicate()
        finally:
            peak.stop()
    if process.returncode:
        raise RuntimeError(f"{side} ended with exit code {process.returncode}")
    printed = json.loads(output.splitlines()[-1])
    rig.progress(f"{size.name}: {side} {printed['seconds']:.1f} s, {peak.mib:.0f} MiB {printed.get('parts', '')}")
    return Cost(printed["seconds"], peak.mib, printed)


class _Peak:
    """The most memory that a process and its children held, seen from another thread."""

    def __init__(self, pid: int) -> None:
        self.mib = 0.0
        self._process = psutil.Process(pid)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End looking."""
        self._stop.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._stop.wait(_LOOK_SECONDS):
            held = 0
            with contextlib.suppress(psutil.NoSuchProcess):
                for process in (self._process, *self._process.children(recursive=True)):
                    with contextlib.suppress(psutil.NoSuchProcess):
                        held += process.memory_full_info().pss
            self.mib = max(self.mib, held / 2**20)


def _compare(folder: Path) -> None:
    """Raise AssertionError where a table of a side has other rows than DuckDB's."""
    *ours, duck, plain = (folder / side for side in SIDES)
    import duckdb  # only where it is used; see sides/pipeline_duckdb.py

    with duckdb.connect() as connection:
        connection.execute("set enable_progress_bar = false")
        for name in QUERIES:
            layer = "silver" if name in ("events", "requests", "lives") else "gold"
            columns = _PLACES.get(name, "")
            expected = f"(select * {columns} from '{duck}/{name}.parquet')"
            order = connection.sql(f"from {expected} limit 0").columns
            lakes = [f"{side}/{POOL}/{layer}/{name}/**/*.parquet" for side in ours]
            for those in (*lakes, f"{plain}/{name}.parquet"):
                # hive: the day is the name of a folder there
                found = f"(select {', '.join(order)} from read_parquet('{those}', hive_partitioning = true))"
                for these, other in ((found, expected), (expected, found)):
                    more = connection.sql(f"from {these} except all from {other} limit 3").fetchall()
                    if more:
                        raise AssertionError(f"{name} of {those} and DuckDB's differ: {more}")
