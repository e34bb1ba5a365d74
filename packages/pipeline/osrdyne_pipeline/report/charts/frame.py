"""The parts of every chart: its size, title and description for readers who cannot see it, axes, and text that fits."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from xml.etree.ElementTree import Element

from osrdyne_pipeline.report.element import element, visible

#: Width of every chart in units of its SVG, which the page scales. Below, a pixel is such a unit.
WIDTH = 640.0
#: Font size that page.css gives to text in charts, in pixels.
FONT = 12.0
#: Height of a line of text, in pixels.
LINE = 16.0


@dataclass(frozen=True)
class Series:
    """A series of a chart: its name, the class of its colour in page.css, and a value for each position."""

    name: str
    style: str
    values: Sequence[float]


@dataclass(frozen=True)
class Area:
    """The area of a chart's marks, in pixels from the left and from the top."""

    left: float
    top: float
    right: float
    bottom: float

    @property
    def width(self) -> float:
        return self.right - self.left

    @property
    def height(self) -> float:
        return self.bottom - self.top

    def y(self, part: float) -> float:
        """Return the pixel at a part (0 to 1) of the height, counted from the bottom."""
        return self.bottom - part * self.height

    def x(self, part: float) -> float:
        """Return the pixel at a part (0 to 1) of the width."""
        return self.left + part * self.width


def chart(title: str, description: str, height: float, *marks: Element | None) -> Element:
    """Return the SVG of a chart."""
    return element(
        "svg",
        element("title", title),
        element("desc", description),
        *marks,
        viewBox=f"0 0 {WIDTH:.0f} {height:.0f}",
        role="img",
        class_="chart",
    )


def text(x: float, y: float, words: str, anchor: str = "start", style: str | None = None) -> Element:
    """Return text at a point, where the start, middle or end of its baseline is."""
    return element("text", words, x=x, y=y, text_anchor=None if anchor == "start" else anchor, class_=style)


def left_axis(area: Area, ticks: Sequence[float], name: Callable[[float], str]) -> Element:
    """Return lines across the area at round values, each with its value to the left."""
    marks: list[Element] = []
    for tick in ticks:
        y = area.y(tick / ticks[-1])
        style = "base" if tick == 0 else "grid"
        marks += (
            element("line", x1=area.left, x2=area.right, y1=y, y2=y, class_=style),
            text(area.left - 6, y + 4, name(tick), "end"),
        )
    return element("g", *marks)


def bottom_axis(area: Area, ticks: Sequence[float], name: Callable[[float], str]) -> Element:
    """Return lines down the area at round values, each with its value below; as many values as fit."""
    step = area.width / max(1, len(ticks) - 1)
    every = spaced(step, max(width(name(tick)) for tick in ticks))
    marks: list[Element] = []
    for number, tick in enumerate(ticks):
        x = area.x(tick / ticks[-1])
        marks.append(element("line", x1=x, x2=x, y1=area.top, y2=area.bottom, class_="grid" if tick else "base"))
        if number % every == 0:
            marks.append(text(x, area.bottom + LINE, name(tick), "middle"))
    return element("g", *marks)


def spaced(step: float, widest: float) -> int:
    """Return n, where every n-th of the labels that are `step` pixels apart can be shown without touching the next."""
    return max(1, -(-int(widest + 10) // max(1, int(step))))


def width(words: str) -> float:
    """Return the width of text in pixels: an estimate that is rather too wide than too narrow."""
    return sum(FONT * (1.05 if unicodedata.east_asian_width(character) in "WF" else 0.62) for character in words)


def fit(words: str, pixels: float) -> str:
    """Return text of at most this width. The middle of wider text is cut out."""
    words = visible(words)
    if width(words) <= pixels:
        return words
    keep = len(words) - 1
    while keep > 2 and width(words[: keep - keep // 2] + "…" + words[-(keep // 2) :]) > pixels:
        keep -= 1
    return f"{words[: keep - keep // 2]}…{words[-(keep // 2) :]}"
