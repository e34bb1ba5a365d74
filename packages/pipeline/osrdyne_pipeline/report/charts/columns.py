"""Columns side by side, each a stack: how much of what there was in an hour, a day, a week."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from xml.etree.ElementTree import Element

from osrdyne_pipeline.report import numbers
from osrdyne_pipeline.report.charts.frame import LINE, WIDTH, Area, Series, chart, left_axis, spaced, text, width
from osrdyne_pipeline.report.element import element

_AREA = Area(left=56, top=12, right=WIDTH - 8, bottom=208)
_WIDEST = 26.0


def columns(
    title: str,
    description: str,
    labels: Sequence[str],
    series: Sequence[Series],
    *,
    upper: Series | None = None,
    name: Callable[[float], str] = numbers.short,
    exact: Callable[[float], str] = numbers.count,
) -> Element:
    """Return stacked columns, the first series at the bottom; `upper` is marked as a line above each column."""
    stacks = [sum(row.values[place] for row in series) for place in range(len(labels))]
    ticks = numbers.ticks(max([*stacks, *(upper.values if upper else ())], default=0.0))
    step = _AREA.width / max(1, len(labels))
    thick = min(_WIDEST, max(step * 0.8, step - 3))
    marks: list[Element] = []
    for place, label in enumerate(labels):
        x = _AREA.left + (place + 0.5) * step - thick / 2
        tooltip_parts = [f"{row.name} {exact(row.values[place])}" for row in (*series, *((upper,) if upper else ()))]
        stack = [element("title", f"{label}: {', '.join(tooltip_parts)}"), *_stack(series, place, x, thick, ticks[-1])]
        if upper is not None:
            y = _AREA.y(upper.values[place] / ticks[-1])
            stack.append(element("line", x1=x, x2=x + thick, y1=y, y2=y, class_=upper.style))
        marks.append(element("g", *stack))
    return chart(
        title,
        description,
        _AREA.bottom + 1.5 * LINE,
        left_axis(_AREA, ticks, name),
        *marks,
        *_names(labels, step),
    )


def _stack(series: Sequence[Series], place: int, x: float, thick: float, top: float) -> list[Element]:
    rectangles, below = [], 0.0
    for row in series:
        value = row.values[place]
        if value > 0:
            y, foot = _AREA.y((below + value) / top), _AREA.y(below / top)
            rectangles.append(
                element("rect", x=x, y=y, width=thick, height=max(0.5, foot - y), class_=row.style),
            )
        below += value
    return rectangles


def _names(labels: Sequence[str], step: float) -> list[Element]:
    widest = max((width(label) for label in labels), default=0.0)
    every = spaced(step, widest)
    named = []
    for place, label in list(enumerate(labels))[::every]:
        middle = _AREA.left + (place + 0.5) * step
        middle = min(max(middle, width(label) / 2), WIDTH - width(label) / 2)
        named.append(text(middle, _AREA.bottom + LINE, label, "middle"))
    return named
