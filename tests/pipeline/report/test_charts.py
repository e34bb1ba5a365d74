"""Charts as plain functions: numbers in, SVG out."""

from __future__ import annotations

import re
from xml.etree.ElementTree import Element

import pytest

from osrdyne_pipeline.report import numbers
from osrdyne_pipeline.report.charts import frame
from osrdyne_pipeline.report.charts.bars import bars, pairs
from osrdyne_pipeline.report.charts.columns import columns
from osrdyne_pipeline.report.charts.frame import Series
from osrdyne_pipeline.report.charts.heatmap import heatmap, step_of, thresholds
from osrdyne_pipeline.report.charts.tradeoff import ChartPoint, tradeoff
from osrdyne_pipeline.report.element import element, html, shown


def rectangles(chart: Element, style: str) -> list[dict[str, float]]:
    return [
        {name: float(element.attrib[name]) for name in ("x", "y", "width", "height")}
        for element in chart.iter("rect")
        if element.get("class") == style
    ]


def test_columns_stack_and_their_heights_are_in_proportion() -> None:
    drawn = columns("t", "d", ["a", "b"], [Series("cold", "cold", [1, 2]), Series("warm", "warm", [3, 0])])

    cold, warm = rectangles(drawn, "cold"), rectangles(drawn, "warm")
    assert len(warm) == 1  # nothing is not drawn
    assert cold[1]["height"] == pytest.approx(2 * cold[0]["height"], abs=0.2)
    assert warm[0]["height"] == pytest.approx(3 * cold[0]["height"], abs=0.2)
    assert warm[0]["y"] + warm[0]["height"] == pytest.approx(cold[0]["y"], abs=0.2)


def test_bars_of_several_parts_are_as_long_as_their_total() -> None:
    drawn = bars("t", "d", ["a", "b"], [Series("one", "one", [10, 5]), Series("two", "two", [30, 5])])

    ends = [part["x"] + part["width"] for part in rectangles(drawn, "two")]
    begin = rectangles(drawn, "one")[0]["x"]
    assert (ends[0] - begin) == pytest.approx(4 * (ends[1] - begin), abs=5)
    assert [element.text for element in drawn.iter("text")] == ["a", "40", "b", "10"]


def test_before_and_after_share_one_scale() -> None:
    drawn = pairs("t", "d", ["a"], Series("before", "before", [200]), Series("after", "after", [50]))

    assert rectangles(drawn, "before")[0]["width"] == pytest.approx(4 * rectangles(drawn, "after")[0]["width"], abs=0.5)


def test_a_heat_map_has_a_cell_a_value_and_darker_ones_for_more() -> None:
    rows = [[0.0, 1.0], [10.0, 1000.0]]

    drawn = heatmap("t", "d", ["a", "b"], rows, ["00", "01"])

    steps = thresholds(rows)
    assert [step_of(value, steps) for row in rows for value in row] == [0, 1, 2, 6]
    assert [element.get("class") for element in drawn.iter("rect")] == ["heat0", "heat1", "heat2", "heat6"]
    assert thresholds([[0.0]]) == []


def test_a_trade_off_leaves_out_what_is_far_dearer_than_any_policy() -> None:
    line = [ChartPoint("1 min", 10, 90), ChartPoint("10 min", 20, 50), ChartPoint("1 d", 5000, 1)]

    drawn = tradeoff(
        "t", "d", line, [ChartPoint("today", 21, 48, "before"), ChartPoint("recommended", 20, 20, "after")]
    )

    said = [element.text for element in drawn.iter("title")][1:]
    assert [text for text in said if text and text.startswith("1 d")] == []
    assert len(said) == 4
    assert {"today", "recommended"} <= {element.text for element in drawn.iter("text")}


def test_names_of_policies_that_lie_on_each_other_are_all_shown() -> None:
    policies = [ChartPoint(name, 20, 30, "before") for name in ("today", "recommended", "histogram policy")]

    drawn = tradeoff("t", "d", [], policies)

    assert {element.name for element in policies} <= {element.text for element in drawn.iter("text")}


@pytest.mark.parametrize(
    "top, expected", [(0, [0, 1]), (1, [0, 0.25, 0.5, 0.75, 1]), (7, [0, 2, 4, 6, 8]), (1000, [0, 250, 500, 750, 1000])]
)
def test_an_axis_has_round_numbers_up_to_what_is_shown(top: float, expected: list[float]) -> None:
    assert numbers.ticks(top) == pytest.approx(expected)


@pytest.mark.parametrize(
    "milliseconds, words",
    [(0, "0 s"), (850, "850 ms"), (1300, "1.3 s"), (60_000, "1 min"), (1_200_000, "20 min"), (9_000_000, "2.5 h")],
)
def test_a_duration_is_written_in_its_largest_unit(milliseconds: float, words: str) -> None:
    assert numbers.duration(milliseconds) == words


def test_text_that_is_too_wide_is_cut_in_its_middle() -> None:
    assert frame.fit("short", 100) == "short"
    cut = frame.fit("a" * 100 + "end", 100)
    assert frame.width(cut) <= 100
    assert re.fullmatch(r"a+…a*end", cut)


def test_no_text_can_become_markup() -> None:
    made = html(element("p", "<b>&", element("i", "x"), "</p>\x07", title='"><script>'))

    assert made == '<p title="&quot;&gt;<script&gt;">&lt;b&gt;&amp;<i>x</i>&lt;/p&gt;\\x07</p>'


@pytest.mark.parametrize(
    "key, words", [("", "''"), (" ", "' '"), ("LAX", "LAX"), ("a\nb", "'a\\nb'"), ("\u202e", "'\\u202e'")]
)
def test_a_key_that_cannot_be_read_is_quoted(key: str, words: str) -> None:
    assert shown(key) == words
