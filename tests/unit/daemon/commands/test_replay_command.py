"""`osrdyne replay` reads calls strictly and writes events: the same calls, settings and seed make the same bytes."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest

from osrdyne.commands.replay.simulated_pool import PastEvent
from testbed.command_line import CommandResult, osrdyne

CALLS = (
    b'time,key,duration\n2013-01-01T00:00:00Z,a,1.5\n2013-01-01T01:00:00+01:00,"b,\xc3\xa9",\n1357000200.25,a,PT2S\n'
)
#: A header of gzip, and then a block of a type that there is not.
DAMAGED = gzip.compress(CALLS, mtime=0)[:10] + 20 * b"\xff"


def replay(directory: Path, calls: bytes = CALLS, *words: str, name: str = "calls.csv") -> CommandResult:
    file = directory / name
    file.write_bytes(calls)
    return osrdyne("replay", "--calls", str(file), "--out", str(directory / "out.jsonl"), *words)


def rows_in(directory: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (directory / "out.jsonl").read_text().splitlines()]


def times(directory: Path, event: str) -> list[int]:
    return [row["time_ms"] for row in rows_in(directory) if row["event"] == event]


def test_events_are_json_lines_of_what_their_headers_carry(tmp_path: Path) -> None:
    done = replay(tmp_path, CALLS, "--json")

    lines = rows_in(tmp_path)
    assert all(line.keys() <= set(PastEvent._fields) for line in lines)
    assert [line["key"] for line in lines if line["event"] == "orphan-seen"] == ["a", "b,é", "a"]
    assert [line["duration_ms"] for line in lines if line["event"] == "finished"] == [50, 1500, 2000]
    assert times(tmp_path, "orphan-seen") == [1356998400000, 1356998400000, 1357000200250]
    summary = json.loads(done.out)
    assert (summary["events"], summary["requests"], summary["cold"], summary["starts"]) == (len(lines), 3, 3, 3)
    # Three groups, each there for its start, its work, both delays and a look at the queue.
    assert summary["worker_hours"] == pytest.approx(3 * 1210.5 / 3600, abs=0.01)
    assert summary["busy_hours"] == pytest.approx(3.55 / 3600, abs=0.001)
    assert summary["first"] == "2013-01-01T00:00:00+00:00"


def test_json_lines_and_packed_files_say_the_same_as_csv(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"time": "2013-01-01T00:00:00Z", "key": "a", "duration": 1.5},
        {"time": 1356998400, "key": "b,é"},
        {"time": "1357000200.25", "key": "a", "duration": "PT2S"},
    ]
    lines = "".join(json.dumps(row) + "\n" for row in rows).encode()
    assert replay(tmp_path).code == 0
    expected = (tmp_path / "out.jsonl").read_bytes()

    for name, content in (
        ("calls.jsonl", lines),
        ("calls.jsonl.gz", gzip.compress(lines, mtime=0)),
        ("calls.csv.gz", gzip.compress(CALLS, mtime=0)),
        ("calls.csv", b"\xef\xbb\xbf" + CALLS.replace(b"\n", b"\r\n")),
    ):
        assert replay(tmp_path, content, name=name).code == 0
        assert (tmp_path / "out.jsonl").read_bytes() == expected


def test_the_same_seed_makes_the_same_bytes_and_another_one_others(tmp_path: Path) -> None:
    made: list[bytes] = []
    for seed in ("7", "7", "8"):
        calls, out = tmp_path / "calls.csv", tmp_path / f"out-{len(made)}.jsonl.gz"
        calls.write_bytes(CALLS)
        words = ("--seed", seed, "--start-time", "PT3S", "--start-spread", "0.5")
        assert osrdyne("replay", "--calls", str(calls), "--out", str(out), *words).code == 0
        made.append(out.read_bytes())

    assert made[0] == made[1] != made[2]
    starts = [json.loads(line) for line in gzip.decompress(made[2]).splitlines()]
    waits = [start["time_ms"] for start in starts if start["event"] == "started"]
    assert waits[0] - 1356998400006 != waits[1] - 1356998400006 > 0


def test_delays_come_from_the_settings_or_from_the_command(tmp_path: Path) -> None:
    settings = tmp_path / "settings.toml"
    settings.write_text(
        '[pool]\nname = "core"\nunbind_delay = 60\nstop_delay = 60\n[pool.overrides.a]\nunbind_delay = 120\n'
        '[broker]\nstatistics_interval = 1\n[intervals]\ndebounce = 0.5\n[driver]\nkind = "noop"\n'
    )
    calls = b"time,key\n0,a\n0,b\n"

    assert replay(tmp_path, calls, "--settings", str(settings)).code == 0
    assert times(tmp_path, "unbound") == [2006 + 60_500, 2006 + 120_500]
    assert times(tmp_path, "group-stopped") == [2006 + 121_500, 2006 + 181_500]
    assert replay(tmp_path, calls, "--settings", str(settings), "--unbind-delay", "PT10S").code == 0
    assert times(tmp_path, "unbound") == [2006 + 10_500, 2006 + 120_500]
    assert replay(tmp_path, calls, "--start-time", "0", "--run-time", "0").code == 0
    assert times(tmp_path, "unbound") == [6 + 601_000] * 2


def test_spans_after_the_last_activity_come_from_the_settings(tmp_path: Path) -> None:
    # Given a key called every hour, which is let go after a minute and made active again after 55
    calls = "time,key\n" + "".join(f"{1356998400 + 3600 * number},a\n" for number in range(10))
    settings = tmp_path / "settings.toml"
    settings.write_text(
        '[pool]\nname = "core"\n[pool.overrides.a]\nunbind_delay = 60\nstop_delay = 60\nprewarm = [[3300, "PT1H5M"]]\n'
    )

    summary = json.loads(replay(tmp_path, calls.encode(), "--settings", str(settings), "--json").out)

    # Then only the first call is cold. Each costs its delays, a look at the queue, and 5 minutes before the next
    assert (summary["cold"], summary["requests"]) == (1, 10)
    assert summary["worker_hours"] == pytest.approx((10 * (120 + 7.5) + 9 * 300 + 600 + 60 + 7.5) / 3600, abs=0.02)


def test_without_calls_there_are_no_events(tmp_path: Path) -> None:
    done = replay(tmp_path, b"time,key\n")

    assert (done.code, done.out) == (0, f"{tmp_path}/out.jsonl: no calls, no events\n".encode())
    assert rows_in(tmp_path) == []


@pytest.mark.parametrize(
    ("name", "calls", "problem"),
    [
        ("calls.txt", CALLS, "is neither .csv nor .jsonl (nor one of these with .gz); rename or convert it"),
        ("calls.csv", b"", "line 1: is ''; begin with a line of names: time,key[,duration]"),
        ("calls.csv", b"time,what\n", "line 1: is 'time,what'; begin with a line of names"),
        ("calls.csv", b"time,key,key\n", "line 1: is 'time,key,key'"),
        ("calls.csv", b"time,key\n0,a\n1\n", "line 3: has 1 fields, not 2"),
        ("calls.csv", b"time,key\n0,a\nsoon,a\n", "line 3: time: 'soon' is not a moment; give ISO 8601 with an offset"),
        (
            "calls.csv",
            b"time,key\n2013-01-01T00:00:00,a\n",
            "line 2: time: '2013-01-01T00:00:00' is not a moment; give",
        ),
        ("calls.csv", b"time,key\nnan,a\n", "line 2: time: 'nan' is not a moment from 1970 to 9999"),
        ("calls.csv", b"time,key\n-1,a\n", "line 2: time: '-1' is not a moment from 1970 to 9999"),
        ("calls.csv", b"time,key\n1e300,a\n", "line 2: time: '1e300' is not a moment from 1970 to 9999"),
        ("calls.csv", b"time,key\n2,a\n1,b\n", "line 3: is earlier than the call before it; sort the file by time"),
        (
            "calls.csv",
            b"time,key\n0," + 256 * b"k" + b"\n",
            "line 2: key of 256 bytes; a routing key holds at most 255",
        ),
        ("calls.csv", b"time,key\n0,a\0b\n", "line 2: key holds NUL"),
        (
            "calls.csv",
            b"time,key,duration\n0,a,-1\n",
            "line 2: duration: -1.0 is not a duration of zero or more seconds",
        ),
        ("calls.csv", b"time,key,duration\n0,a,soon\n", "line 2: duration: "),
        ("calls.csv", b'time,key\n0,a\n0,"a\n', "after line 2: unexpected end of data; the file is damaged or cut off"),
        ("calls.csv", b"time,key\n0,\xff\n", "is not UTF-8 text; convert it"),
        ("calls.csv.gz", gzip.compress(CALLS, mtime=0)[:-10], "the file is damaged or cut off"),
        ("calls.csv.gz", CALLS, "the file is damaged or cut off"),
        ("calls.csv.gz", DAMAGED, "the file is damaged or cut off"),
        ("calls.jsonl", b'{"time": 0, "key": "a"}\n{"time"\n', "line 2: cannot be read: it is not JSON: "),
        ("calls.jsonl", b"[" * 100_000, "line 1: cannot be read: more than 64 objects and arrays"),
        ("calls.jsonl", b'{"time": 0}\n', "line 1: is not an object with time, key and if wanted duration"),
        ("calls.jsonl", b'{"time": 0, "key": "a", "dur": 1}\n', "line 1: is not an object with time, key"),
        ("calls.jsonl", b'{"time": true, "key": "a"}\n', "line 1: time: True is not a moment"),
        ("calls.jsonl", b'{"time": 1' + 400 * b"0" + b', "key": "a"}\n', "line 1: cannot be read: the number 1000000"),
        (
            "calls.jsonl",
            b'{"time": 0, "key": "a", "duration": 1' + 400 * b"0" + b"}",
            "line 1: cannot be read: the number 1000000",
        ),
        ("calls.jsonl", b'{"time": 0, "key": 42}\n', "line 1: key: 42 is not text"),
        ("calls.jsonl", b'{"time": 0, "key": "\\ud800"}\n', "line 1: cannot be read: a text holds half of a surrogate"),
        ("calls.jsonl", b'{"time": 0, "key": "a", "duration": [1]}\n', "line 1: duration: [1] is not a duration"),
    ],
)
def test_what_is_wrong_with_a_list_of_calls_is_said_with_its_line_and_nothing_is_left(
    tmp_path: Path, name: str, calls: bytes, problem: str
) -> None:
    (tmp_path / "out.jsonl").write_text("of an earlier replay")

    done = replay(tmp_path, calls, name=name)

    assert (done.code, done.out) == (2, b"")
    assert problem in done.line
    assert name in done.line
    assert sorted(os.listdir(tmp_path)) == sorted([name, "out.jsonl"])
    assert (tmp_path / "out.jsonl").read_text() == "of an earlier replay"


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (
            ("--unbind-delay", "soon"),
            "--unbind-delay: 'soon' is not a duration; give seconds (90 or 1.5) or ISO 8601 text ('PT1M30S')",
        ),
        (("--unbind-delay", "0"), "pool.unbind_delay: must be longer than 0 seconds"),
        (("--start-time", "-1"), "--start-time: -1.0 is not a duration"),
        (("--run-time", "inf"), "--run-time: inf is not a duration"),
        (("--settings", "/nowhere/settings.toml"), "/nowhere/settings.toml: does not exist"),
        (("--out", "/nowhere/events.jsonl"), "--out: /nowhere/events.jsonl cannot be written: No such file"),
        (("--out", "events.parquet"), "--out: events.parquet is neither .jsonl nor .jsonl.gz"),
        (("--calls", "/nowhere/calls.csv"), "/nowhere/calls.csv: cannot be read: No such file or directory"),
    ],
)
def test_what_is_wrong_with_an_option_is_said(tmp_path: Path, words: tuple[str, ...], problem: str) -> None:
    done = replay(tmp_path, CALLS, *words)

    assert done.code == 2
    assert problem in done.line


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[pool", "is not TOML"),
        ("pool = 1", "pool: is not a table; write [pool]"),
        ('[pool]\nname = "core"\nunbind = 1\n', "pool.unbind: is not a setting"),
        ('[pool]\nname = "core"\n[intervals]\ndebounce = -1\n', "debounce: "),
        (
            '[pool]\nname = "core"\n[broker]\nx = 1\n',
            "broker.x: is not a setting; known are amqp_uri, ",
        ),
    ],
)
def test_what_is_wrong_with_the_settings_is_said(tmp_path: Path, text: str, problem: str) -> None:
    settings = tmp_path / "settings.toml"
    settings.write_text(text)

    done = replay(tmp_path, CALLS, "--settings", str(settings))

    assert done.code == 2
    assert str(settings) in done.line
    assert problem in done.line
