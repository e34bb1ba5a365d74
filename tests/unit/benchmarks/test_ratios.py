"""How the benchmarks compare two sides."""

import pytest

from benchmarks import calls
from benchmarks.ratios import Row, Spread, Target, compared, ratios
from benchmarks.report import document, extremes, number, table
from benchmarks.rig import in_turns


def test_the_ratio_is_the_median_of_the_rounds_and_not_the_ratio_of_the_medians() -> None:
    # Given a machine that slowed down between the rounds, both sides alike but for one round
    ours, peer = [100.0, 50.0, 10.0], [100.0, 50.0, 40.0]

    # Then two rounds say that they are equal; the medians, 50 and 50, would hide the third
    assert ratios(ours, peer) == Spread(median=1.0, low=0.25, high=1.0)


def test_an_even_number_of_rounds_has_its_median_between_the_two_in_the_middle() -> None:
    assert ratios([1.0, 2.0, 3.0, 4.0], [1.0, 1.0, 1.0, 1.0]) == Spread(median=2.5, low=1.0, high=4.0)


@pytest.mark.parametrize(
    ("ours", "peer"),
    [([1.0, 2.0], [1.0]), ([], []), ([1.0], [0.0])],
    ids=["a round is missing", "no rounds", "the peer did nothing"],
)
def test_rounds_that_do_not_pair_up_have_no_ratio(ours: list[float], peer: list[float]) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - what is wrong is said in three ways
        ratios(ours, peer)


@pytest.mark.parametrize(
    ("target", "ratio", "met"),
    [
        (Target(0.7), 0.7, True),
        (Target(0.7), 0.69, False),
        (Target(2.0, at_most=True), 2.0, True),
        (Target(2.0, at_most=True), 2.01, False),
    ],
)
def test_a_target_is_met_by_the_median(target: Target, ratio: float, met: bool) -> None:
    assert target.met_by(Spread(ratio, low=0.0, high=10.0)) is met


def test_a_row_without_target_is_neither_met_nor_missed() -> None:
    assert compared("m", "ms", [1.0], [2.0], "peer").met is None
    assert Row(measure="m", unit="ms", ours=Spread.of([1.0])).met is None


def test_sides_take_turns_and_none_always_follows_the_same_one() -> None:
    assert list(in_turns(3, ["a", "b"])) == ["a", "b", "b", "a", "a", "b"]


def test_rounds_of_two_pairs_are_compared_in_the_order_in_which_they_were_measured() -> None:
    # Given our pair twice as fast as every peer in each round, on a machine that slows down
    rounds = [100.0, 10.0, 1.0]
    rates = {f"{name}-{prefetch}": rounds for name in calls.PAIRS for prefetch in calls.PREFETCHES}
    rates |= {f"ours-{prefetch}": [2 * rate for rate in rounds] for prefetch in calls.PREFETCHES}

    found = [row for row in calls.rows(rates) if "handler on the loop" in row.measure]

    # Then each such row says two: enough for bare pika, not for aio-pika
    assert [(row.ratio, row.met) for row in found] == [
        (Spread(2.0, 2.0, 2.0), True),
        (Spread(2.0, 2.0, 2.0), False),
    ] * 2


def test_a_worker_busy_half_of_the_time_has_room_for_twice_the_calls_despite_an_odd_clock() -> None:
    names = ("aio-pika-1", "aio-pika-mute-1", "bare-1", "bare-hasty-1")
    rates = {name: [100.0] for name in names}
    busy = {name: [1.2] if name == "bare-1" else [0.5] for name in names}

    hasty, same, mute, bare = (row.ratio.median for row in calls.bounds(rates, busy) if row.ratio is not None)

    assert (hasty, same, mute) == (1.0, 2.0, 2.0)
    assert bare == pytest.approx(100.0)


def test_the_table_and_the_document_show_what_was_missed() -> None:
    rows = [
        compared("fast enough", "calls/s", [8.0], [10.0], "peer", Target(0.7)),
        compared("too slow", "calls/s", [5.0], [10.0], "peer", Target(0.7)),
        Row(measure="memory", unit="MB", ours=Spread.of([60.0])),
    ]

    shown = [list(column.cells) for column in table(rows).columns]
    result = document(rows, "4.3", failed=[])

    assert shown[6] == ["yes", "NO", ""]
    assert [row["met"] for row in result["rows"]] == [True, False, None]
    assert result["rows"][1]["ratio"] == {"median": 0.5, "low": 0.5, "high": 0.5}
    assert result["machine"]["rabbitmq"] == "4.3"


@pytest.mark.parametrize(
    ("value", "text"), [(12345.6, "12,346"), (99.95, "100"), (3.14159, "3.14"), (0.0464, "0.0464")]
)
def test_numbers_have_three_digits_that_mean_something(value: float, text: str) -> None:
    assert number(value) == text


def test_extremes_are_those_of_the_ratio_or_of_the_values_themselves() -> None:
    assert extremes(compared("m", "ms", [1.0, 4.0], [2.0, 2.0], "peer")) == "0.50..2.00"
    assert extremes(Row(measure="m", unit="ms", ours=Spread.of([1.0, 4.0]))) == "1..4 ms"
    assert extremes(Row(measure="m", unit="MB", ours=Spread.of([60.0]))) == ""
