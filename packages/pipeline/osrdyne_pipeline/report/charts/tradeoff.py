"""The trade-off curve: what fewer cold starts cost in worker-hours, and where each policy stands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from xml.etree.ElementTree import Element

from osrdyne_pipeline.report import numbers
from osrdyne_pipeline.report.charts.frame import FONT, LINE, WIDTH, Area, bottom_axis, chart, left_axis, text, width
from osrdyne_pipeline.report.element import element

_AREA = Area(left=64, top=14, right=WIDTH - 14, bottom=280)
#: Where beside its point a name may stand: pixels to the right and down, and the end that is nearest to the point.
_PLACES = ((10, 4, "start"), (-10, 4, "end"), (0, -11, "middle"), (0, 20, "middle"), (9, -8, "start"), (9, 16, "start"))
#: The same for a point of the curve, which falls to the right: above it is room.
_ABOVE = ((6, -7, "start"), (0, -10, "middle"), (-6, 15, "end"), (0, 19, "middle"))


@dataclass(frozen=True)
class ChartPoint:
    """One policy: its worker-hours, its cold starts, and the class of its mark in page.css (empty: on the line)."""

    name: str
    hours: float
    cold: float
    style: str = ""


def tradeoff(
    title: str,
    description: str,
    line: Sequence[ChartPoint],
    policies: Sequence[ChartPoint],
    best: Sequence[ChartPoint] = (),
) -> Element:
    """Return the curves through `line` (fixed delays) and `best`, with `policies` marked. Both axes begin at 0.

    What costs more than two and a half times the dearest policy is left out: it would press the rest together.
    """
    dearest = max([policy.hours for policy in policies], default=0.0)
    near = [point for point in line if not policies or point.hours <= 2.5 * dearest]
    best = [point for point in best if not policies or point.hours <= 2.5 * dearest]
    shown = [*policies, *near, *best]
    across, up = (
        numbers.ticks(max(point.hours for point in shown), 6),
        numbers.ticks(max(point.cold for point in shown)),
    )

    def at(point: ChartPoint) -> tuple[float, float]:
        return _AREA.x(point.hours / across[-1]), _AREA.y(point.cold / up[-1])

    def through(points: Sequence[ChartPoint], style: str) -> Element | None:
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in map(at, sorted(points, key=lambda point: point.hours)))
        return element("polyline", points=path, class_=f"curve {style}") if len(points) > 1 else None

    marks = [
        element("circle", element("title", _said(point)), cx=at(point)[0], cy=at(point)[1], r=3.0) for point in near
    ]
    marks += [
        element(
            "circle", element("title", _said(policy)), cx=at(policy)[0], cy=at(policy)[1], r=6.5, class_=policy.style
        )
        for policy in policies
    ]
    return chart(
        title,
        description,
        _AREA.bottom + 2.8 * LINE,
        bottom_axis(_AREA, across, numbers.short),
        left_axis(_AREA, up, numbers.short),
        text((_AREA.left + _AREA.right) / 2, _AREA.bottom + 2.4 * LINE, "worker-hours", "middle"),
        through(near, "line-fixed"),
        through(best, "line-ours"),
        element("g", *marks),
        *_names([*policies, *near], at, len(policies)),
    )


def _said(point: ChartPoint) -> str:
    return f"{point.name}: {numbers.count(point.cold)} cold starts, {numbers.count(point.hours)} worker-hours"


def _names(
    points: Sequence[ChartPoint], at: Callable[[ChartPoint], tuple[float, float]], important: int
) -> list[Element]:
    """Return the names that fit beside their points without touching each other; those of policies come first."""
    taken: list[tuple[float, float, float, float]] = []
    centres = [at(point) for point in points]
    taken += [(x - 7, y - 7, x + 7, y + 7) for x, y in centres[:important]]
    taken += [(x - 3, y - 3, x + 3, y + 3) for x, y in centres[important:]]
    named = []
    for number, (point, (x, y)) in enumerate(zip(points, centres, strict=True)):
        for right, down, anchor in _PLACES if number < important else _ABOVE:
            long = width(point.name)
            left = x + right - {"start": 0.0, "middle": long / 2, "end": long}[anchor]
            box = (left, y + down - FONT, left + long, y + down + 4)
            if _inside(box) and not any(_touch(box, other) for other in taken):
                taken.append(box)
                style = "strong halo" if number < important else "halo"
                named.append(text(x + right, y + down, point.name, anchor, style))
                break
        else:
            # A reader must be able to distinguish policies; one without room for its name is in the table below.
            named += _aside(point, x, y, taken) if number < important else []
    return named


def _aside(point: ChartPoint, x: float, y: float, taken: list[tuple[float, float, float, float]]) -> list[Element]:
    """Return the name at some distance, with a line to its point."""
    long = width(point.name)
    for distance in (34, 52, 70, 88):
        for right, down in (
            (distance, -distance),
            (distance, distance),
            (-distance - long, -distance),
            (-distance - long, distance),
        ):
            box = (x + right, y + down - FONT, x + right + long, y + down + 4)
            if _inside(box) and not any(_touch(box, other) for other in taken):
                taken.append(box)
                near = box[0] if right > 0 else box[2]
                leader = element("line", x1=x, y1=y, x2=near, y2=y + down - 4, class_="grid")
                return [leader, text(box[0], y + down, point.name, style="strong halo")]
    return []


def _inside(box: tuple[float, float, float, float]) -> bool:
    return box[0] >= _AREA.left and box[2] <= WIDTH and box[1] >= 0 and box[3] <= _AREA.bottom


def _touch(one: tuple[float, float, float, float], other: tuple[float, float, float, float]) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
