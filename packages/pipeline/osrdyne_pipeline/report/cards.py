"""What the sections of the page are made of: a card with a title, a legend, the numbers of a chart as a table."""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree.ElementTree import Element

from osrdyne_pipeline.report.charts.frame import Series
from osrdyne_pipeline.report.element import element


def section(title: str, lead: str, *inside: Element) -> Element:
    """Return a card of the page."""
    return element("section", element("h2", title), element("p", lead, class_="lead"), *inside)


def legend(series: Sequence[Series]) -> Element:
    """Return what colours stand for."""
    marks = [element("li", element("i", class_=f"swatch {row.style}"), row.name) for row in series]
    return element("ul", *marks, class_="legend")


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Element:
    """Return the numbers of a chart, folded away: for who cannot see it, and for who wants to copy them."""
    return element("details", element("summary", "Numbers"), open_table(head, rows))


def open_table(head: Sequence[str], rows: Sequence[Sequence[str | Element]]) -> Element:
    """Return a table that is shown at once."""
    cells = [element("tr", *(element("td", cell) for cell in row)) for row in rows]
    inner = element(
        "table",
        element("thead", element("tr", *(element("th", name, scope="col") for name in head))),
        element("tbody", *cells),
    )
    return element("div", inner, class_="scroll")


def nothing(title: str, why: str) -> Element:
    """Return a card that says why there is nothing in it."""
    return element("section", element("h2", title), element("p", why, class_="nothing"))
