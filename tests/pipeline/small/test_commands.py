"""The commands on a small pool: from events to a page in a process that has neither Java nor pyspark."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from osrdyne_pipeline.commands import PIPELINE, starting
from osrdyne_pipeline.errors import LakeError
from osrdyne_pipeline.lake import Lake
from osrdyne_pipeline.slices import NOTE
from osrdyne_pipeline.small.engine import SmallEngine
from osrdyne_runtime.console.output import CannotAsk
from testbed.waiting import until
from tests.pipeline.small_history import BEGIN, COLD, EVENTS, REQUESTS, write
from tests.pipeline.tables.histories import made_small, random_history

#: Runs commands one after the other, and prints the exit status and the output of each.
COMMANDS = """
import gc, json, sys
sys.modules.update(dict.fromkeys(("pyspark", "py4j")))
from typer.testing import CliRunner
from osrdyne_pipeline.commands import PIPELINE
for words in json.loads(sys.argv[1]):
    done = CliRunner().invoke(PIPELINE, words, catch_exceptions=False)
    print(json.dumps([done.exit_code, done.stdout, done.stderr]))
# A command freezes what it has imported, for its process runs no other command; DuckDB reports at the end what was not
# collected.
gc.unfreeze()
"""


def run(lake: Path, *commands: list[str]) -> list[tuple[int, str, str]]:
    """Run commands in one process without Spark; their exit statuses, standard outputs and errors."""
    words = [[*command, "--pool", "core", "--lake", str(lake)] for command in commands]
    done = subprocess.run(
        [sys.executable, "-c", COMMANDS, json.dumps(words)],
        env={"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), "JAVA_HOME": str(lake)},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return [(status, out, said) for status, out, said in map(json.loads, done.stdout.splitlines())]


def test_the_commands_after_each_other_end_in_a_report_without_java_and_without_spark(tmp_path: Path) -> None:
    file = tmp_path / "events.jsonl"
    write(file)
    with file.open("a") as lines:
        lines.write('rubbish\n{"key": "LAX", "event": "exploded"}\n')

    ingest = ["ingest", str(file), "--json"]
    report = ["report", "--output", str(tmp_path / "page.html")]
    forget = ["forget", "--event-id", f"{0:032x}", "--yes"]
    by_spark = ["--engine", "spark"]
    again_by_spark = ["forget", "--event-id", f"{1:032x}", "--yes", *by_spark]
    by_spark_tables = ["tables", *by_spark]
    said = run(
        tmp_path, ingest, ingest, ["tables", "--json"], ["recommend"], report, forget, by_spark_tables, again_by_spark
    )

    assert [status for status, *_ in said] == [0, 0, 0, 0, 0, 0, 2, 2], said
    first, again, tables = (json.loads(out) for _, out, _ in said[:3])
    assert (first["events"], first["reasons"]) == (EVENTS, {"unreadable": 1, "unknown_event": 1})
    assert (again["events"], again["known_files"]) == (0, 1)
    rows: dict[str, Any] = tables["rows"]
    assert (rows["silver/requests"], rows["silver/events"], rows["gold/key_classes"]) == (REQUESTS, EVENTS, 2)
    assert "14/14" in said[2][2]
    assert "whole days of history" in said[3][1]
    page = tmp_path / "page.html"
    assert said[4][1] == f"report of core: {page}\n"
    assert f'<dd class="value">{COLD}</dd>' in page.read_text()
    assert "1 events and 0 rejects" in said[5][1]
    for _, _, line in said[6:]:
        assert line == "osrdyne: pyspark is not installed; install osrdyne-pipeline[spark]\n"
    with SmallEngine.open("1g") as engine:
        engine.show(Lake(tmp_path, "core"), "bronze", "silver/events", "rejects")
        # What could not be made again was not forgotten either
        for name in ("bronze", "events"):
            assert engine.rows(f"from (from {name}) select count(*) as n") == [{"n": EVENTS - 1}], name
        assert engine.rows("select count(*) as n from rejects") == [{"n": 2}]


def test_a_forget_that_was_cut_short_is_ended_by_tables_and_the_same_command(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, line = tmp_path / "events.jsonl", "FileNotFoundError: a line of a worker"
    ended = {
        "key": "XX",
        "event": "worker-ended",
        "event_id": "a",
        "time_ms": BEGIN,
        "outcome": "exit 1",
        "output": line,
    }
    file.write_text(json.dumps(ended))
    here = ["--pool", "core", "--lake", str(lake.home.parent)]

    def invoke(*words: str) -> int:
        return CliRunner().invoke(PIPELINE, [*words, *here]).exit_code

    def places() -> set[str]:
        """Tables of which any version has the line."""
        files = lake.home.glob("versions/**/*.parquet")
        return {
            path.relative_to(lake.home).parts[1][:11] for path in files if line in str(pq.read_table(path).to_pylist())
        }

    assert (invoke("ingest", str(file)), invoke("tables")) == (0, 0)
    assert "gold.causes" in places()
    with monkeypatch.context() as patched:
        patched.setattr("osrdyne_pipeline.commands.forget.build", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        assert invoke("forget", "--event-id", "a", "--yes") != 0

    assert (invoke("tables"), invoke("forget", "--event-id", "a", "--yes")) == (0, 0)
    assert places() == set()


#: The program whose first table takes for ever.
ENDLESS = """
from osrdyne_command import program
from osrdyne_pipeline.commands import PIPELINE
from osrdyne_pipeline.small.engine import QUERIES
ENDLESS = "select max(hash(number)) from range(1000000000000) every(number)"
QUERIES["silver/events"] = f"select * from ({QUERIES['silver/events']}) where ({ENDLESS}) > 0"
program.run(PIPELINE, "osrdyne pipeline")
"""


def worked(process: int) -> float:
    """Seconds of a processor that a process has used."""
    used = psutil.Process(process).cpu_times()
    return used.user + used.system


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_in_the_midst_of_a_query_ends_the_command_as_interrupted(lake: Lake) -> None:
    made_small(lake, random_history(1, keys=1, events_of_a_key=5))
    # Or nothing would be made again
    (lake.home / NOTE).unlink()
    words = ["tables", "--pool", "core", "--lake", str(lake.home.parent)]
    with subprocess.Popen([sys.executable, "-c", ENDLESS, *words], stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr is not None
        try:
            said = running.stderr.read(len("  1/14"))
            begun = worked(running.pid)
            until(lambda: worked(running.pid) > begun + 0.3, what="DuckDB works")
        finally:  # or a test that fails would wait for the query without an end
            running.send_signal(signal.SIGINT)
        said += running.stderr.read()

    assert (running.returncode, "Traceback" in said) == (130, False), said


def test_more_memory_than_any_machine_has_is_one_line(lake: Lake) -> None:
    made_small(lake, random_history(1, keys=1, events_of_a_key=5))
    [(status, _, said)] = run(lake.home.parent, ["tables", "--memory", "9999999999999t"])

    assert (status, said.count("\n")) == (2, 1)
    assert "Memory value out of range" in said


def test_a_damaged_file_of_bronze_is_one_line_that_names_it(tmp_path: Path) -> None:
    events = tmp_path / "events.jsonl"
    write(events)
    [(status, *_)] = run(tmp_path, ["ingest", str(events)])
    assert status == 0
    [file] = tmp_path.glob("core/bronze/batch=*/**/*.parquet")
    file.write_bytes(file.read_bytes()[:50])

    forget = ["forget", "--event-id", f"{0:032x}"]
    said = run(tmp_path, ["tables"], forget, ["tables", "--engine", "duckdb"])

    for status, _, line in said:
        assert (status, file.name in line, line.splitlines()[-1][:9]) == (2, True, "osrdyne: "), line
    assert all("put back a copy" in line for *_, line in said[:2])
    # It keeps no new event out.
    assert run(tmp_path, ["ingest", str(events)])[0][0] == 0


@pytest.mark.parametrize("name", ["a\\b", os.fsdecode(b"a\xff")], ids=["a backslash", "not UTF-8"])
def test_a_lake_that_duckdb_cannot_reach_is_refused_before_anything_is_written(name: str, tmp_path: Path) -> None:
    events = tmp_path / "events.jsonl"
    write(events)
    (tmp_path / name / "core/gold/demand").mkdir(parents=True)
    before = sorted(tmp_path.rglob("*"))

    for status, _, said in run(tmp_path / name, ["ingest", str(events)], ["report"]):
        assert (status, said.count("\n")) == (2, 1), said
        assert "a backslash or is not UTF-8: give another path" in said
    assert sorted(tmp_path.rglob("*")) == before


def test_a_lake_that_cannot_be_written_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    file, fresh = tmp_path / "events.jsonl", tmp_path / "fresh"
    write(file)
    fresh.mkdir()
    # Also root may make no file there.
    read_only = Path("/sys/kernel/lake")

    [inside, away, made] = [run(lake, ["ingest", str(file)])[0] for lake in (file / "lake", read_only, fresh / "lake")]

    assert (inside[0], away[0], made[0]) == (2, 2, 0)
    assert inside[2] == f"osrdyne: no lake can be in {file}/lake/core: {file} is not a folder; give another --lake\n"
    assert "/sys/kernel cannot be written (" in away[2]
    assert away[2].endswith("; give another --lake, or the right to write there\n")


def test_commands_that_only_read_work_on_a_lake_that_cannot_be_written(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made_small(lake, random_history(1, keys=1, events_of_a_key=5))

    def refuse(_lake: Lake) -> None:
        raise LakeError("not writable")

    monkeypatch.setattr(Lake, "check_writable", refuse)
    words = ["--pool", "core", "--lake", str(lake.home.parent)]
    for command, status in (
        (["report", "--output", str(tmp_path / "page.html")], 0),
        (["forget", "--event-id", "a"], 0),
        (["report"], 2),
        (["tables"], 2),
        (["recommend"], 2),
        (["forget", "--event-id", "a", "--yes"], 2),
    ):
        assert CliRunner().invoke(PIPELINE, [*command, *words]).exit_code == status, command


@pytest.mark.full
def test_a_page_of_a_key_says_of_it_what_the_tables_say(lake: Lake, tmp_path: Path) -> None:
    made = made_small(lake, random_history(1, keys=4, events_of_a_key=60))
    words = ["report", "--pool", "core", "--lake", str(lake.home.parent), "--json"]
    output = ["--output", str(tmp_path / "page.html")]

    def totals(*more: str) -> dict[str, int]:
        done = CliRunner().invoke(PIPELINE, [*words, *output, *more])
        assert done.exit_code == 0, done.output
        said: dict[str, int] = json.loads(done.stdout)
        return said

    names = ("events", "requests", "failed", "cold", "waited_ms", "up_ms", "busy_ms", "unknown")
    whole, keys = totals(), sorted({row[0] for row in made["key_classes"]})
    parts = [totals("--key", key) for key in keys]
    assert {name: sum(part[name] for part in parts) for name in names} == {name: whole[name] for name in names}
    page = (tmp_path / "page.html").read_text()
    assert f"<h1>Pool core, key {keys[-1]}</h1>" in page
    assert "Failures by cause" in page
    assert "What was promised and what came" not in page
    assert not any(f">{other}<" in page for other in keys[:-1])
    # Nothing is written where there is no such key, or over the page of the pool
    (tmp_path / "page.html").unlink()
    for wrong, problem in (
        (["--key", "no'body", *output], "no event of the key"),
        (["--key", os.fsdecode(b"\xff"), *output], "is not UTF-8"),
        (["--key", "a"], "needs --output"),
    ):
        done = CliRunner().invoke(PIPELINE, [*words, *wrong])
        assert done.exit_code == 2
        assert problem in done.output
    assert not (tmp_path / "page.html").exists()


def test_the_engine_follows_from_what_is_asked_for_and_from_the_number_of_events(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(starting, "_session", lambda: None)
    monkeypatch.delenv("SPARK_ENV_LOADED", raising=False)
    assert starting.chosen("auto", None, lake) == "duckdb"
    assert starting.chosen("auto", "spark://head:7077", lake) == "spark"
    assert starting.chosen("spark", None, lake) == "spark"
    with pytest.raises(CannotAsk, match="--master"):
        starting.chosen("duckdb", "spark://head:7077", lake)

    made_small(lake, random_history(1, keys=1, events_of_a_key=5))
    monkeypatch.setattr(starting, "MOST_EVENTS", 5)
    assert starting.chosen("auto", None, lake) == "duckdb"
    monkeypatch.setattr(starting, "MOST_EVENTS", 4)
    assert starting.chosen("auto", None, lake) == "spark"
    assert starting.chosen("duckdb", None, lake) == "duckdb"
    monkeypatch.setattr(starting, "MOST_EVENTS", 5)
    monkeypatch.setenv("SPARK_ENV_LOADED", "1")
    assert starting.chosen("auto", None, lake) == "spark"
