"""Bars across, one a row, each of one part or of several: the split of a latency, causes of failures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from xml.etree.ElementTree import Element

from osrdyne_pipeline.report import numbers
from osrdyne_pipeline.report.charts.frame import LINE, WIDTH, Area, Series, bottom_axis, chart, fit, text
from osrdyne_pipeline.report.element import element

_GUTTER = 150.0
_TOTAL = 72.0
_ROW = 26.0
_THICK = 15.0


def bars(
    title: str,
    description: str,
    names: Sequence[str],
    series: Sequence[Series],
    *,
    exact: Callable[[float], str] = numbers.count,
    gutter: float = _GUTTER,
) -> Element:
    """Return the bars with their totals to the right; parts stand next to each other in the order of `series`."""
    bottom = 4 + _ROW * len(names)
    area = Area(left=gutter, top=4, right=WIDTH - _TOTAL, bottom=bottom)
    totals = [sum(row.values[line] for row in series) for line in range(len(names))]
    top = max(totals, default=0.0) or 1.0
    marks: list[Element] = [element("line", x1=area.left, x2=area.left, y1=4, y2=bottom, class_="base")]
    for line, name in enumerate(names):
        y = area.top + line * _ROW
        tooltip = ", ".join(f"{row.name} {exact(row.values[line])}" for row in series)
        marks += (
            text(gutter - 8, y + _ROW / 2 + 4, fit(name, gutter - 14), "end"),
            element("g", element("title", f"{name}: {tooltip}"), *_parts(series, line, y, area, top)),
            text(area.x(totals[line] / top) + 6, y + _ROW / 2 + 4, exact(totals[line]), style="strong"),
        )
    return chart(title, description, bottom + 4, *marks)


def pairs(
    title: str,
    description: str,
    names: Sequence[str],
    before: Series,
    after: Series,
    *,
    exact: Callable[[float], str] = numbers.count,
) -> Element:
    """Return two bars a row, one below the other: before and after."""
    row = 2 * _THICK + 14
    bottom = 4 + row * len(names)
    area = Area(left=_GUTTER, top=4, right=WIDTH - _TOTAL, bottom=bottom)
    top = max([*before.values, *after.values], default=0.0) or 1.0
    ticks = numbers.ticks(top)
    marks: list[Element] = [bottom_axis(area, ticks, numbers.short)]
    for line, name in enumerate(names):
        y = area.top + line * row + 6
        marks.append(text(_GUTTER - 8, y + _THICK + 4, fit(name, _GUTTER - 14), "end"))
        for bound in (before, after):
            value = bound.values[line]
            long = area.width * value / ticks[-1]
            marks += (
                element(
                    "rect",
                    element("title", f"{name}, {bound.name}: {exact(value)}"),
                    x=area.left,
                    y=y,
                    width=max(1.0, long),
                    height=_THICK - 1,
                    class_=bound.style,
                ),
                text(area.left + long + 6, y + _THICK - 3.5, exact(value), style="strong halo"),
            )
            y += _THICK
    return chart(title, description, bottom + 1.5 * LINE, *marks)


def _parts(series: Sequence[Series], line: int, y: float, area: Area, top: float) -> list[Element]:
    parts, left = [], area.left
    for row in series:
        long = area.width * row.values[line] / top
        if long > 0:
            # A thin gap separates neighbours where their colours do not.
            shown = max(0.5, long - 1) if len(series) > 1 else long
            parts.append(
                element("rect", x=left, y=y + (_ROW - _THICK) / 2, width=shown, height=_THICK, class_=row.style)
            )
        left += long
    return parts
