"""`osrdyne pipeline`: what it prints, how it fails, and that its parts work after each other."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession
from typer.testing import CliRunner, Result

from osrdyne_pipeline.commands import PIPELINE, starting
from osrdyne_pipeline.commands.output import one_line_errors
from osrdyne_pipeline.session import session
from tests.pipeline.small_history import COLD, EVENTS, REQUESTS, write


def run(*words: str | Path, **variables: str) -> Result:
    """Run the command in this process, with the session that it has."""
    ours = {name: None for name in os.environ if name.startswith("OSRDYNE_")}
    return CliRunner().invoke(PIPELINE, [*map(str, words)], env={**ours, **variables}, catch_exceptions=False)


def complaint(result: Result) -> str:
    """The one line that says what is wrong."""
    assert result.exit_code == 2, result.output
    lines = result.stderr.splitlines()
    assert len(lines) == 1, lines
    assert lines[0].startswith("osrdyne: ")
    return lines[0]


def ingested(lake: Path) -> dict[str, Any]:
    """Take the file in; what the command says of it."""
    said: dict[str, Any] = json.loads(
        run("ingest", lake / "events.jsonl", "--pool", "core", "--lake", lake, "--json").stdout
    )
    return said


def test_events_are_taken_in_once(tmp_path: Path) -> None:
    write(tmp_path / "events.jsonl")

    first, again = ingested(tmp_path), ingested(tmp_path)

    assert (first["events"], first["rejects"]) == (EVENTS, 0)
    assert (again["events"], again["known_files"]) == (0, 1)


@pytest.mark.full
def test_the_commands_after_each_other_end_in_a_report(spark: SparkSession, tmp_path: Path) -> None:
    lake = tmp_path
    write(lake / "events.jsonl")
    ingested(lake)
    tables = run("tables", "--pool", "core", "--lake", lake, "--json")
    reported = run("report", "--pool", "core", "--lake", lake)

    rows = json.loads(tables.stdout)["rows"]
    assert (rows["silver/requests"], rows["silver/events"], rows["gold/key_classes"]) == (REQUESTS, EVENTS, 2)
    assert "14/14" in tables.stderr  # progress, table by table
    page = (lake / "core/report.html").read_text()
    assert str(lake / "core/report.html") in reported.stdout
    assert f'<dd class="value">{COLD}</dd>' in page
    assert "No recommendation was made yet" in page


@pytest.mark.full
def test_a_report_with_a_damaged_recommendation_says_what_to_do(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "lake/core/gold/demand").mkdir(parents=True)
    (tmp_path / "lake/core/recommendation.json").write_text("{}")

    assert "recommendation.json is not a recommendation" in complaint_last(
        run("report", "--pool", "core", "--lake", tmp_path / "lake")
    )


def complaint_last(result: Result) -> str:
    """The last line on standard error: progress went before."""
    assert result.exit_code == 2, result.output
    return result.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    "words, said",
    [
        (("tables",), "osrdyne pipeline ingest brings them"),
        (("forget", "--event-id", "a"), "osrdyne pipeline ingest brings them"),
        (("report",), "osrdyne pipeline tables makes them"),
        (("recommend",), "osrdyne pipeline tables makes them"),
    ],
)
def test_a_lake_without_what_is_needed_is_reported_with_the_command_that_makes_it(
    words: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    line = complaint(run(*words, "--pool", "core", "--lake", tmp_path))

    assert str(tmp_path / "core") in line
    assert said in line


def test_an_error_is_also_the_one_json_document_where_that_is_asked_for(tmp_path: Path) -> None:
    result = run("tables", "--pool", "core", "--lake", tmp_path, "--json")

    assert "no events" in json.loads(result.stdout)["error"]


@pytest.mark.parametrize(
    "words, said",
    [
        (("tables",), "--pool"),
        (("tables", "--pool", "No Pool"), "pool"),
        (("tables", "--pool", "core", "--memory", "much"), "512m"),
        (("tables", "--pool", "core", "--engine", "pandas"), "auto, duckdb, spark"),
        (("ingest", "--pool", "core", "--on-gap", "shrug"), "shrug"),
        (("nonsense",), "nonsense"),
        (("forget", "--pool", "core", "--before", "yesterday"), "'yesterday' is not a time"),
        (("tables", "--pool", "core", "--lake", "gs://bucket/lake"), "or a bucket of an S3-compatible store"),
        (("ingest", "hdfs://host/events", "--pool", "core"), "begins with hdfs:"),
        (("recommend", "--pool", "core", "--lake", "file:///lake"), "give the path alone"),
        (("report", "--pool", "core", "--output", "gs://bucket/report.html"), "begins with gs:"),
    ],
)
def test_a_wrong_argument_is_wrong_usage_and_says_what_would_be_right(words: tuple[str, ...], said: str) -> None:
    result = run(*words)

    assert result.exit_code == 64
    assert said in " ".join(result.stderr.replace("│", " ").split())
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    "words, said",
    [
        *(
            (("ingest", "x.jsonl", *words), "--uri-file, --follow, --on-gap and --new-stream are for the stream")
            for words in (("--follow",), ("--uri-file", "address"), ("--on-gap", "record"), ("--new-stream",))
        ),
        (("forget",), "give one of --source, --before and --event-id"),
        (("forget", "--event-id", "a", "--before", "2020-01-01"), "give one of"),
    ],
)
def test_options_that_do_not_go_together_are_one_line(words: tuple[str, ...], said: str) -> None:
    assert said in complaint(run(*words, "--pool", "core"))


def test_files_that_are_not_there_are_named(tmp_path: Path) -> None:
    result = run("ingest", tmp_path / "absent.jsonl", "--pool", "core", "--lake", tmp_path)

    assert "absent.jsonl: there is no such file" in complaint(result)


def test_without_a_broker_address_it_says_how_to_give_one(tmp_path: Path) -> None:
    result = run("ingest", "--pool", "core", "--lake", tmp_path)

    assert "OSRDYNE_EVENTS_URI" in complaint(result)


@pytest.mark.parametrize(
    "script, said",
    [
        (None, "there is none here"),
        ("echo 'openjdk version \"11.0.2\" 2019-01-15' >&2", "this one is 11"),
        ("echo nonsense >&2; exit 1", "there is none here"),
    ],
    ids=["none", "too old", "broken"],
)
def test_no_java_or_one_too_old_is_reported_with_what_to_install(script: str | None, said: str, tmp_path: Path) -> None:
    write(tmp_path / "events.jsonl")
    ingested(tmp_path)
    (tmp_path / "bin").mkdir()
    if script is not None:
        (tmp_path / "bin/java").write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "bin/java").chmod(0o755)

    done = separately("tables", "--engine", "spark", "--lake", tmp_path, JAVA_HOME=str(tmp_path))

    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert said in done.stderr
    assert "default-jre-headless" in done.stderr
    assert "--engine duckdb" in done.stderr


def test_a_java_that_ends_at_once_is_reported_with_where_its_words_are(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    version = '[ "$1" = -version ] && { echo \'openjdk version "17.0.1"\' >&2; exit; }'
    (tmp_path / "bin/java").write_text(f"#!/bin/sh\n{version}\necho 'no room' >&2; exit 1\n")
    (tmp_path / "bin/java").chmod(0o755)
    write(tmp_path / "events.jsonl")
    ingested(tmp_path)

    done = separately(
        *("tables", "--engine", "spark", "--lake", tmp_path),
        JAVA_HOME=str(tmp_path),
        TMPDIR=str(tmp_path),
    )

    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1, done.stderr
    (log,) = tmp_path.glob("osrdyne-pipeline-*.log")
    assert str(log) in done.stderr
    assert "no room" in log.read_text()


@pytest.mark.parametrize("submitted", [False, True], ids=["session of ours", "spark-submit"])
def test_spark_s_errors_become_one_line_without_a_traceback(
    spark: SparkSession, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, submitted: bool
) -> None:
    if submitted:
        monkeypatch.setenv("SPARK_ENV_LOADED", "1")

    @one_line_errors
    def command() -> None:
        with starting.spark("test", master=None, memory="1g"):
            raise Py4JError("An error occurred\njava.lang.OutOfMemoryError: Java heap space\n\tat a.b.c")

    with pytest.raises(BaseException, match="2"):
        command()

    said = capsys.readouterr().err
    assert len(said.splitlines()) == 1
    by = "--driver-memory or --executor-memory of spark-submit" if submitted else "--memory"
    assert f"give more by {by};" in said


@pytest.mark.parametrize(
    "error, said",
    [
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"), "[Errno 111] Connection refused"),
        (FileNotFoundError(errno.ENOENT, "No such file or directory", "a.json"), "a.json: No such file or directory"),
        (
            OSError("Failed to open local file 'a'.\nDetail: not there"),
            "Failed to open local file 'a'. Detail: not there",
        ),
        (TimeoutError(), "TimeoutError"),
    ],
)
def test_an_error_of_the_system_is_one_line_and_names_a_file_only_where_it_has_one(
    error: OSError, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    @one_line_errors
    def command() -> None:
        raise error

    with pytest.raises(SystemExit, match="2"):
        command()

    assert capsys.readouterr().err == f"osrdyne: {said}\n"


@pytest.mark.parametrize("within", [False, True])
def test_memory_is_set_unless_spark_submit_has_started_java_with_its_own(
    within: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: dict[str, str] = {}

    def config(builder: SparkSession.Builder, name: str, value: str) -> SparkSession.Builder:
        kept[name] = value
        return builder

    monkeypatch.setattr(SparkSession.Builder, "config", config)
    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", lambda self: self)
    monkeypatch.setattr(os, "environ", {"SPARK_ENV_LOADED": "1"} if within else {})

    session("test", memory="1g")
    assert (kept.get("spark.driver.memory"), kept.get("spark.master")) == (
        (None, None) if within else ("1g", "local[*]")
    )
    # What Java begins with, and what a user's own options are added to.
    assert ("spark.driver.defaultJavaOptions" in kept) == (not within)
    assert "spark.driver.extraJavaOptions" not in kept
    session("test", master="spark://head:7077", memory="1g")
    assert kept["spark.master"] == "spark://head:7077"


def test_the_session_that_a_process_has_is_used_and_not_stopped(spark: SparkSession) -> None:
    with starting.spark("test", master=None, memory="1g") as used:
        assert used is spark

    assert spark.range(2).count() == 2


def separately(*words: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the command as a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "osrdyne_pipeline.cli", *map(str, words), "--pool", "core"],
        env={"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
