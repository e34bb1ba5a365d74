"""A lake in an object store, on a real server: the same tables as in a folder, whole for each reader at any moment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import obstore
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from typer.testing import CliRunner

from osrdyne_pipeline import batches
from osrdyne_pipeline.batches import Batch
from osrdyne_pipeline.commands import PIPELINE
from osrdyne_pipeline.errors import LakeBusy, LakeError
from osrdyne_pipeline.ingest import ingest_files
from osrdyne_pipeline.lake import Lake
from osrdyne_pipeline.schemas import BRONZE, TABLES
from osrdyne_pipeline.slices import build
from osrdyne_pipeline.small.engine import SmallEngine, short
from osrdyne_pipeline.store.lake import StoreLake
from osrdyne_pipeline.store.objects import opened
from testbed.s3.server import S3Server
from testbed.waiting import until
from tests.pipeline.small_history import BEGIN, COLD, EVENTS, REQUESTS, write
from tests.pipeline.tables.histories import ordered, random_history

#: The server is built once for a machine, in minutes.
pytestmark = pytest.mark.full

#: Takes in files one by one, each as a batch of its own.
ONE_BY_ONE = """
import sys
from osrdyne_pipeline import ingest
from osrdyne_pipeline.small.engine import SmallEngine
from osrdyne_pipeline.store.opening import lake_at
ingest.BATCH_BYTES = 1
with SmallEngine.open("1g") as engine:
    ingest.ingest_files(engine, lake_at(sys.argv[1], "core"), sys.argv[2:])
"""


def lines(file: Path, *ids: str, event: str = "alive") -> Path:
    """Write an event for each id."""
    events = [{"key": "k", "event": event, "event_id": event_id, "time_ms": BEGIN} for event_id in ids]
    file.write_text("".join(f"{json.dumps(row)}\n" for row in events))
    return file


def ids(lake: StoreLake, name: str = "bronze") -> list[str]:
    """The ids of the events in a table, as a reader of Delta tables has them."""
    rows = DeltaTable(lake.address(name), storage_options={"allow_http": "true"}).to_pyarrow_table()
    return sorted(rows.column("event_id").to_pylist())


def no_events() -> pa.RecordBatchReader:
    return pa.RecordBatchReader.from_batches(BRONZE, [])


def tables(lake: Lake | StoreLake) -> dict[str, list[tuple[Any, ...]]]:
    """Every row of every table."""
    with SmallEngine.open("1g") as engine:
        engine.show(lake, *TABLES)
        return {
            name: ordered([*map(repr, row.values())] for row in engine.rows(f"from {short(name)}")) for name in TABLES
        }


def run(root: str, *words: str | Path) -> str:
    """Run a command on a lake, and return what it printed."""
    done = CliRunner().invoke(PIPELINE, [*map(str, words), "--pool", "core", "--lake", root], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_random_history_makes_the_same_rows_in_a_store_and_in_a_folder(
    seed: int, engine: SmallEngine, stored: StoreLake, lake: Lake, tmp_path: Path
) -> None:
    history = random_history(seed, keys=40, events_of_a_key=20)
    files = tmp_path / "files"
    files.mkdir()
    for number, share in enumerate((history[:300], history[300:500], history[500:])):
        columns = [list(column) for column in zip(*share, strict=True)]
        given = pa.table(columns[2:], names=BRONZE.names[2:-1])
        pq.write_table(given, files / f"{number}.parquet")
        lines(files / f"bad-{number}.jsonl", "x", "y", event=f"exploded-{number}")
        for place in (stored, lake):
            ingest_files(engine, place, [files])

    for place in (stored, lake):
        with place.only_writer("tables"):
            build(engine, place, lambda *_: None)

    assert tables(stored) == tables(lake)
    assert {name: stored.rows(name) for name in TABLES} == {name: lake.rows(name) for name in TABLES}
    assert stored.rows("rejects") == 6
    assert stored.rows("silver/events") == len(history)
    assert [batch.name for batch in batches.committed(stored)] == [batch.name for batch in batches.committed(lake)]


def test_the_commands_after_each_other_end_in_a_report_that_is_in_the_store(
    s3: S3Server, root: str, stored: StoreLake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "events.jsonl"
    write(file)

    first, again = (json.loads(run(root, "ingest", file, "--json")) for _ in range(2))
    rows = json.loads(run(root, "tables", "--json"))["rows"]
    run(root, "recommend")
    said = run(root, "report")
    removed = f"{0:032x}"
    assert "1 events" in run(root, "forget", "--event-id", removed, "--yes")

    assert (first["events"], first["lake"], again["known_files"]) == (EVENTS, stored.where, 1)
    assert (rows["silver/requests"], rows["silver/events"]) == (REQUESTS, EVENTS)
    assert said == f"report of core: {stored.where}/report.html\n"
    # What was forgotten is in no object any more, but for the log of what was asked; nor is what was made of it.
    here = s3.bucket / stored.where.partition(f"{s3.bucket.name}/")[2]
    logs = {path.relative_to(here) for path in here.rglob("*.json") if removed.encode() in path.read_bytes()}
    assert logs == {Path("bronze/_delta_log", f"{1:020d}.json")}
    for name in ("bronze", "silver/events", "silver/requests"):
        used = DeltaTable(stored.address(name), storage_options={"allow_http": "true"}).file_uris()
        assert {path.name for path in (here / name).rglob("*.parquet")} == {uri.rpartition("/")[2] for uri in used}
    assert removed not in ids(stored)
    assert len(ids(stored, "silver/events")) == EVENTS - 1
    assert stored.read_file("report.html") is None
    run(root, "report")
    page = stored.read_file("report.html")
    assert page is not None
    assert f'<dd class="value">{COLD}</dd>'.encode() in page
    # And a browser shows it as one
    attributes = obstore.get(opened(stored.where), "report.html").attributes
    assert attributes["Content-Type"] == "text/html; charset=utf-8"
    assert list(tmp_path.iterdir()) == [file]


def test_readers_see_whole_tables_while_events_come_in_and_tables_are_made(
    engine: SmallEngine, stored: StoreLake, root: str, tmp_path: Path
) -> None:
    # Given that a table may be seen after any of these batches, and never between
    shares = [[f"{number}-{event}" for event in range(50)] for number in range(6)]
    states = [sorted(event for share in shares[:number] for event in share) for number in range(1, len(shares) + 1)]
    files = [lines(tmp_path / f"{number}.jsonl", *share) for number, share in enumerate(shares)]
    ingest_files(engine, stored, files[:1])
    build(engine, stored, lambda *_: None)
    seen: dict[str, list[Sequence[str]]] = {"bronze": [], "silver/events": []}
    ended = threading.Event()

    def look() -> None:
        other = StoreLake(root, "core")
        while not ended.is_set():
            for name, found in seen.items():
                found.append(ids(other, name))

    # When both are read all the time
    with_looks = threading.Thread(target=look)
    with_looks.start()
    try:
        for file in files[1:]:
            ingest_files(engine, stored, [file])
            with stored.only_writer("tables"):
                build(engine, stored, lambda *_: None)
    finally:
        ended.set()
        with_looks.join()

    for name, found in seen.items():
        places = [states.index(list(state)) for state in found]
        assert places == sorted(places), name
        assert len(set(places)) > 2, name
    assert ids(stored, "silver/events") == states[-1]


def test_of_two_processes_that_ingest_one_is_refused_and_no_event_is_there_twice(
    engine: SmallEngine, stored: StoreLake, root: str, tmp_path: Path
) -> None:
    other = StoreLake(root, "core")
    for number in range(2):
        file = lines(tmp_path / f"{number}.jsonl", f"id-{number}")
        with stored.only_writer("ingest"):
            assert len(stored.committed()) == number
            ingest_files(engine, other, [file])
            with pytest.raises(LakeBusy, match="try again when it has ended"):
                stored.append(Batch(name="late"), no_events, no_events)
        with stored.only_writer("ingest"):
            assert len(stored.committed()) == number + 1

    assert ingest_files(engine, stored, [tmp_path]).known_files == 2
    assert ids(stored) == ["id-0", "id-1"]


def test_of_two_processes_that_make_tables_the_later_one_is_refused(
    engine: SmallEngine, stored: StoreLake, root: str, tmp_path: Path
) -> None:
    ingest_files(engine, stored, [lines(tmp_path / "a.jsonl", "a")])

    def first(name: str, *_: int) -> None:
        if name == "silver/events":
            with SmallEngine.open("1g") as another:
                build(another, StoreLake(root, "core"), lambda *_: None)

    with stored.only_writer("tables"), pytest.raises(LakeBusy, match="silver/events meanwhile"):
        build(engine, stored, first)


def test_an_ingest_that_is_killed_is_gone_on_with_and_each_event_is_there_once(
    engine: SmallEngine, stored: StoreLake, root: str, tmp_path: Path
) -> None:
    every = [f"id-{number:02d}" for number in range(40)]
    files = [lines(tmp_path / f"{file}.jsonl", file) for file in every]
    # What a killed process had for its own time stays
    own = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", ONE_BY_ONE, root, *map(str, files)], env=own) as running:
        until(lambda: len(stored.committed()) >= 3, what="some batches")
        running.kill()

    done = ingest_files(engine, stored, files)

    assert (done.known_files >= 3, done.known_files + done.events) == (True, len(every))
    assert ids(stored) == every


def test_rejects_of_a_batch_that_was_not_committed_are_not_shown(
    engine: SmallEngine, stored: StoreLake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text("rubbish\n")
    commit = stored._commit
    monkeypatch.setattr(stored, "_commit", lambda name, rows, **how: name == "bronze" or commit(name, rows, **how))
    ingest_files(engine, stored, [file])
    assert stored.rows("rejects") == 1
    engine.show(stored, "rejects")
    assert engine.rows("from rejects") == []

    monkeypatch.undo()


def test_a_log_that_was_shortened_is_reported_and_nothing_is_read_again(
    engine: SmallEngine, stored: StoreLake, s3: S3Server, tmp_path: Path
) -> None:
    for number in range(2):
        ingest_files(engine, stored, [lines(tmp_path / f"{number}.jsonl", f"id-{number}")])
    DeltaTable(stored.address("bronze"), storage_options={"allow_http": "true"}).create_checkpoint()
    log = s3.bucket / stored.address("bronze").partition(f"{s3.bucket.name}/")[2] / "_delta_log"
    (log / f"{0:020d}.json").unlink()

    with pytest.raises(LakeError, match="_delta_log, or ingest everything into a lake of its own"):
        ingest_files(engine, stored, [tmp_path])


def test_of_two_updates_of_an_object_at_once_one_is_kept(stored: StoreLake) -> None:
    for other in ("one", "two"):

        def late(content: bytes | None, other: str = other) -> str:
            # Another process is quicker
            stored.update_file("changes.json", lambda _: other)
            return "late"

        with pytest.raises(LakeBusy, match=r"has written .*/changes\.json meanwhile"):
            stored.update_file("changes.json", late)
        assert stored.read_file("changes.json") == other.encode()
    stored.update_file("changes.json", lambda content: f"{content!r} and more")
    assert stored.read_file("changes.json") == b"b'two' and more"
