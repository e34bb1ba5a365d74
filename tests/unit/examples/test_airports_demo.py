"""The demo replays a day in its true order, separates cold from warm, and counts what is wrong or lost."""

from __future__ import annotations

import asyncio
import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from examples.airports import access, cache, demo, flights, group_watch, questions, replay, report
from osrdyne_client import errors, replies

if TYPE_CHECKING:
    from examples.airports.whole_table import WholeTable

Flights = list[tuple[datetime, str, str]]

MORNING = datetime.fromisoformat("2013-12-21T05:00")


def departures(*minutes_and_destinations: tuple[int, str]) -> Flights:
    return [(MORNING + timedelta(minutes=minute), "JFK", key) for minute, key in minutes_and_destinations]


def reply(answer: dict[str, Any], worker: str, answers: int) -> replies.Reply:
    body = answer | {"served_by": {"worker": worker, "answers": answers}}
    return replies.Reply("ok", json.dumps(body).encode(), {}, "")


class Pool:
    """Answers like workers that take `start` seconds to start. Notes the time and key of each request."""

    def __init__(self, start: float = 0.0) -> None:
        self._start = start
        self._answers: dict[str, int] = {}
        self._ready: dict[str, asyncio.Event] = {}
        self.asked: list[tuple[float, str]] = []

    async def call(self, key: str, body: bytes) -> replies.Reply:
        self.asked.append((asyncio.get_running_loop().time(), key))
        if key not in self._ready:
            self._ready[key] = asyncio.Event()
            await asyncio.sleep(self._start)
            self._ready[key].set()
        await self._ready[key].wait()
        self._answers[key] = self._answers.get(key, 0) + 1
        return reply({"to": key}, f"worker of {key}", self._answers[key])


def watching(started: int) -> group_watch.GroupWatch:
    watch = group_watch.GroupWatch()
    watch.started = started
    return watch


@pytest.mark.looptime
async def test_the_demo_waits_for_workers_that_are_being_started_however_long_they_take() -> None:
    asks = replay.plan(departures((0, "BOS")), speed=60)
    pool = Pool(start=demo.SILENCE_SECONDS + 30)
    [outcome] = await demo.replayed(pool.call, asks, replay.Progress(), watching(started=1))
    assert outcome.status == "ok"


@pytest.mark.looptime
@pytest.mark.parametrize("watch", [watching(started=0), None], ids=["no group started", "groups are not counted"])
async def test_the_demo_ends_soon_when_no_worker_answers_and_none_is_started(
    watch: group_watch.GroupWatch | None,
) -> None:
    asks = replay.plan(departures((0, "BOS")), speed=60)
    with pytest.raises(demo.NobodyAnswers, match="is the daemon running"):
        await demo.replayed(Pool(start=demo.SILENCE_SECONDS + 30).call, asks, replay.Progress(), watch)


@pytest.fixture(scope="module")
def table() -> WholeTable:
    from examples.airports.whole_table import WholeTable  # pandas: half a second for each process that collects tests

    return WholeTable(Path(cache.source()))


@pytest.mark.looptime
async def test_requests_are_sent_in_their_order_at_their_distances(looptime: Any) -> None:
    # Given flights at 05:00, 05:00, 05:10 and 07:00, and workers that take longer than that to start
    asks = replay.plan(departures((0, "BOS"), (0, "ORD"), (10, "BOS"), (120, "JAC")), speed=60)
    pool = Pool(start=300)

    # When they are replayed at a minute a second
    await replay.replay(pool.call, asks, replay.Progress())

    # Then none waited for the answer of another
    assert pool.asked == [(0, "BOS"), (0, "ORD"), (10, "BOS"), (120, "JAC")]
    assert looptime == 420


@pytest.mark.looptime
async def test_cold_waiting_and_warm_requests_are_distinguished() -> None:
    asks = replay.plan(departures((0, "BOS"), (1, "BOS"), (10, "BOS"), (11, "ORD")), speed=60)

    outcomes = await replay.replay(Pool(start=5).call, asks, replay.Progress())

    found = report.make(outcomes, [""] * 4, (2, 1))
    assert (found.cold.count, found.waited.count, found.warm.count) == (2, 1, 1)
    assert (found.cold.p50, found.cold.most) == (5.0, 5.0)
    assert found.waited.most == pytest.approx(4.0, abs=0.1)
    assert found.warm.most == pytest.approx(0.0, abs=0.1)
    assert found.last_line == "demo: requests=4 answered=4 wrong=0 lost=0"
    assert found.good


@pytest.mark.looptime
async def test_a_request_without_an_answer_is_lost_and_an_error_reply_is_wrong() -> None:
    # Given one destination that never answers, one whose answer is an error, one that answers in another form
    async def call(key: str, _body: bytes) -> replies.Reply:
        if key == "SBN":
            raise errors.CallTimeout
        if key == "ANC":
            raise errors.Expired(status="expired", body=b"")
        return replies.Reply("ok", b"[]", {}, "")

    asks = replay.plan(departures((0, "SBN"), (1, "ANC"), (2, "LEX")), speed=60)
    outcomes = await replay.replay(call, asks, replay.Progress())

    found = report.make(outcomes, report.check(outcomes, lambda _key, _question: {}), (None, None))

    assert found.last_line == "demo: requests=3 answered=2 wrong=2 lost=1"
    assert not found.good
    assert sorted(reason for reason, _ in found.reasons) == [
        "CallTimeout: Nothing came back in time; whether the request was or will be served is unknown.",
        "expired: ",
        "not an answer of this pool: b'[]'",
    ]


@pytest.mark.looptime
async def test_an_answer_that_differs_from_the_whole_table_is_wrong() -> None:
    asks = replay.plan(departures((0, "BOS"), (1, "ORD")), speed=60)
    outcomes = await replay.replay(Pool().call, asks, replay.Progress())

    faults = report.check(outcomes, lambda key, _question: {"to": "BOS" if key == "BOS" else "elsewhere"})

    assert faults == ["", "likely-delay: not what the whole table says"]


@pytest.mark.parametrize("error", replay.HOPELESS)
@pytest.mark.looptime
async def test_a_pool_that_is_not_there_ends_the_replay_at_once(
    error: type[errors.OsrdyneError], looptime: Any
) -> None:
    async def call(_key: str, _body: bytes) -> replies.Reply:
        raise error

    asks = replay.plan(departures((0, "BOS"), (600, "ORD")), speed=60)

    with pytest.raises(error):
        await replay.replay(call, asks, replay.Progress())

    assert looptime < 1


@pytest.mark.full
def test_the_day_of_the_demo_lets_more_workers_go_cold_than_there_are_destinations(table: WholeTable) -> None:
    # Given the demo's day at its speed, and a pool that keeps an idle worker for eight seconds
    asks = replay.plan(table.schedule(demo.DAY), demo.SPEED)
    last: dict[str, float] = {}
    cold = 0
    for ask in asks:
        cold += ask.due - last.get(ask.key, -100.0) > 8.0
        last[ask.key] = ask.due

    assert (len(asks), len(last)) == (811, 90)
    assert 60 <= asks[-1].due <= 90
    assert cold > 1.5 * len(last)
    assert [ask.due for ask in asks] == sorted(ask.due for ask in asks)


@pytest.mark.full
def test_workers_answer_every_kind_of_question_of_the_demo(table: WholeTable) -> None:
    empty = flights.Airport("XXX", None, [], {})

    kinds = {
        questions.answer(empty, ask.question)["question"]
        for ask in replay.plan(table.schedule(demo.DAY, 6, 8), demo.SPEED)
    }

    assert kinds == {"board", "likely-delay", "delays"}


def test_addresses_come_from_the_files_of_make_up(tmp_path: Path) -> None:
    (tmp_path / "airports").mkdir()
    (tmp_path / "airports" / "client.uri").write_text("amqp://c:secret@h/v\n")
    (tmp_path / "airports" / "monitor.uri").write_text("amqp://m:secret@h/v\n")

    found = access.find("airports", None, None, tmp_path)

    assert (found.client, found.monitor) == ("amqp://c:secret@h/v", "amqp://m:secret@h/v")
    assert "secret" not in repr(found)


def test_an_address_that_is_given_wins_and_may_be_a_file(tmp_path: Path) -> None:
    (tmp_path / "mine.uri").write_text("amqp://mine@h/v\n")

    assert access.find("airports", str(tmp_path / "mine.uri"), None, tmp_path).client == "amqp://mine@h/v"
    assert access.find("airports", "amqp://other@h/v", None, tmp_path) == access.Access("amqp://other@h/v", None)


@pytest.mark.parametrize("broker", [None, "/no/such/file"])
def test_on_a_machine_without_a_pool_the_error_says_what_to_do(tmp_path: Path, broker: str | None) -> None:
    with pytest.raises(access.NoAccess, match=r"make up|amqp://"):
        access.find("airports", broker, None, tmp_path)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--day", "2014-01-01"], "the flights of 2013"),
        (["--day", "yesterday"], "invalid"),
        (["--hours", "12-5"], "pair of hours"),
        (["--hours", "5"], "pair of hours"),
        (["--speed", "0"], "not larger than 0"),
        (["--speed", "nan"], "not larger than 0"),
        (["--sped", "1"], "unrecognized"),
    ],
)
def test_an_option_that_makes_no_sense_is_named(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        demo.main(arguments)

    assert ended.value.code == 2
    assert says in capsys.readouterr().err


async def test_a_broker_that_is_away_is_named_without_its_password(
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = ["--broker", "amqp://someone:secret@127.0.0.1:9/%2F", "--hours", "5-6"]
    code = await asyncio.to_thread(demo.main, arguments)  # a thread, because main runs a loop of its own

    output = capsys.readouterr()
    assert code == 2
    assert "127.0.0.1:9" in output.err
    assert "make up" in output.err
    assert "secret" not in output.err + output.out
