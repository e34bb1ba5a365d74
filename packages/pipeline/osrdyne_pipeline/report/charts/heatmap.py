"""A heat map: a row a key, a column an hour of the day, the darker the more. Steps of colour grow by a factor each,
because demand does: on even steps, all but the heaviest keys would look the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree.ElementTree import Element

from osrdyne_pipeline.report import numbers
from osrdyne_pipeline.report.charts.frame import LINE, WIDTH, Area, chart, fit, text
from osrdyne_pipeline.report.element import element

#: Steps of colour for what is more than nothing; page.css has `heat0` for nothing, `heat1` to this.
STEPS = 6
#: By what a step's beginning is at least, and at most, larger than the one before.
_LEAST, _MOST = 1.3, 3.0
_GUTTER = 150.0
_ROW = 17.0
_TOP = 20.0


def thresholds(rows: Sequence[Sequence[float]]) -> list[float]:
    """Return where each step of colour begins; empty where there is nothing."""
    some = [value for row in rows for value in row if value > 0]
    if not some:
        return []
    factor = min(_MOST, max(_LEAST, (max(some) / min(some)) ** (1 / STEPS)))
    return [max(some) / factor**step for step in range(STEPS, 0, -1)]


def heatmap(
    title: str, description: str, names: Sequence[str], rows: Sequence[Sequence[float]], columns: Sequence[str]
) -> Element:
    """Return the map; `rows` has as many values a row as there are columns."""
    bottom = _TOP + _ROW * len(rows)
    area = Area(left=_GUTTER, top=_TOP, right=WIDTH - 4, bottom=bottom)
    wide = area.width / len(columns)
    steps = thresholds(rows)
    marks: list[Element] = [
        text(area.left + (place + 0.5) * wide, _TOP - 6, name, "middle") for place, name in enumerate(columns)
    ]
    for line, (name, values) in enumerate(zip(names, rows, strict=True)):
        y = _TOP + line * _ROW
        marks.append(text(_GUTTER - 8, y + _ROW - 4, fit(name, _GUTTER - 14), "end"))
        marks += (
            element(
                "rect",
                element("title", f"{name}, {columns[place]} h: {numbers.count(value)}"),
                x=area.left + place * wide,
                y=y,
                width=wide - 1,
                height=_ROW - 1,
                class_=f"heat{step_of(value, steps)}",
            )
            for place, value in enumerate(values)
        )
    return chart(title, description, bottom + LINE / 4, *marks)


def step_of(value: float, steps: Sequence[float]) -> int:
    """Return the step of colour of a value: 0 for nothing."""
    return max(1, sum(value >= begin * (1 - 1e-9) for begin in steps)) if value > 0 else 0
