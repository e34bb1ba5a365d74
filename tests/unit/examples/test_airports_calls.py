"""The year's flights as calls: at their departure, in the order of time, and as many worlds of them as wanted."""

from __future__ import annotations

import gzip
import zipfile
from collections import Counter
from pathlib import Path

import pytest

from examples.airports import cache, calls

#: A flight that left late, one that left early, one that never left and whose aircraft is not known.
TABLE = """year,dep_delay,tailnum,dest,hour,minute,time_hour
2013,10,N1,LAX,5,15,2013-01-01T10:00:00Z
2013,-2,N2,IAH,5,15,2013-01-01T10:00:00Z
2013,NA,NA,ATL,5,0,2013-01-01T10:00:00Z
2013,0,N1,LAX,23,59,2013-01-03T04:00:00Z
"""
TEN = 1_357_034_400


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A data set of four flights in the place of the installed one."""
    with zipfile.ZipFile(tmp_path / cache.FLIGHTS_FILE, "w") as archive:
        archive.writestr("flights.csv", TABLE)
    monkeypatch.setattr(cache, "source", lambda: str(tmp_path))
    return str(tmp_path)


def test_a_call_comes_when_its_flight_left_or_else_when_it_should_have(source: str) -> None:
    assert calls.flights(source, "dest") == [
        (TEN, "ATL"),
        (TEN + 13 * 60, "IAH"),
        (TEN + 25 * 60, "LAX"),
        (TEN + 42 * 3600 + 59 * 60, "LAX"),
    ]


def test_a_flight_whose_aircraft_is_not_known_is_not_a_call_of_an_aircraft(source: str) -> None:
    assert [key for _, key in calls.flights(source, "tailnum")] == ["N2", "N1", "N1"]


def test_the_file_is_csv_and_ends_after_the_days_that_are_wanted(source: str, tmp_path: Path) -> None:
    plain, packed = tmp_path / "calls.csv", tmp_path / "calls.csv.gz"
    for path in (plain, packed):
        calls.main(["--key", "dest", "--out", str(path), "--days", "1"])

    assert plain.read_text().splitlines() == [
        "time,key",
        "2013-01-01T10:00:00Z,ATL",
        "2013-01-01T10:13:00Z,IAH",
        "2013-01-01T10:25:00Z,LAX",
    ]
    assert gzip.decompress(packed.read_bytes()) == plain.read_bytes()


def test_further_worlds_have_every_flight_a_little_earlier_or_later_under_keys_of_their_own() -> None:
    true = [(number * 100, f"k{number % 7}") for number in range(2000)]

    found = list(calls.scaled(true, 3, seed=1))

    assert found == sorted(found)
    assert [call for call in found if "-" not in call[1]] == true
    for world in ("-2", "-3"):
        mine = [(at, key.removesuffix(world)) for at, key in found if key.endswith(world)]
        assert Counter(key for _, key in mine) == Counter(key for _, key in true)
        for key in {key for _, key in true}:
            shifts = [
                moved - at
                for moved, at in zip(
                    sorted(at for at, call in mine if call == key),
                    [at for at, call in true if call == key],
                    strict=True,
                )
            ]
            assert max(map(abs, shifts)) <= calls.JITTER
            assert len(set(shifts)) > 10
    assert list(calls.scaled(true, 3, seed=1)) == found != list(calls.scaled(true, 3, seed=2))


def test_a_mistake_in_a_call_is_reported(source: str, capsys: pytest.CaptureFixture[str]) -> None:
    for words, problem in (
        (["--key", "dest", "--out", "calls.txt"], "--out calls.txt: is neither .csv nor .csv.gz"),
        (["--key", "dest", "--out", "calls.csv", "--scale", "0"], "--days and --scale are 1 or more"),
    ):
        with pytest.raises(SystemExit):
            calls.main(words)
        assert problem in capsys.readouterr().err
