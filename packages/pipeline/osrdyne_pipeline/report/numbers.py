"""Numbers, durations and times as a person reads them, and the round numbers of an axis."""

from __future__ import annotations

import math
from datetime import UTC, datetime

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS

_UNITS = ((DAY_MS, "d"), (HOUR_MS, "h"), (60_000, "min"), (1000, "s"), (1, "ms"))


def count(number: float) -> str:
    """Return a number of things with thousands apart; a fraction only where the number is small."""
    if number != 0 and abs(number) < 10 and number != round(number):
        return f"{number:.2g}"
    return f"{number:,.0f}"


def short(number: float) -> str:
    """Return a number for an axis: 1.5 k, 20 M."""
    for size, letter in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if abs(number) >= size:
            return f"{number / size:.3g}{letter}"
    return f"{number:.3g}"


def duration(milliseconds: float) -> str:
    """Return a duration in its largest fitting unit: 850 ms, 1.3 s, 20 min, 2.5 h."""
    for size, unit in _UNITS:
        if abs(milliseconds) >= size:
            value = milliseconds / size
            return f"{value:.0f} {unit}" if value >= 10 or value == round(value) else f"{value:.2g} {unit}"
    return "0 s" if milliseconds == 0 else "< 1 ms"


def hours(milliseconds: float) -> str:
    """Return worker time in hours."""
    value = milliseconds / HOUR_MS
    return f"{value:,.0f} h" if value >= 100 else f"{value:.3g} h"


def share(part: float, whole: float) -> str:
    """Return a part in per cent of a whole; a dash where there is no whole."""
    if not whole:
        return "–"
    percent = 100 * part / whole
    return f"{percent:.0f} %" if percent >= 10 or percent == round(percent) else f"{percent:.2g} %"


def change(before: float, now: float) -> str:
    """Return by how much a number grew, in per cent; a dash where there was nothing before."""
    return f"{100 * (now / before - 1):+.0f} %".replace("-", "−") if before else "–"


def day(milliseconds: int) -> str:
    """Return the day of a time in UTC as 2013-12-21."""
    return f"{datetime.fromtimestamp(milliseconds / 1000, UTC):%Y-%m-%d}"


def moment(milliseconds: int) -> str:
    """Return a time in UTC to the minute."""
    return f"{datetime.fromtimestamp(milliseconds / 1000, UTC):%Y-%m-%d %H:%M}"


def ticks(top: float, wanted: int = 4) -> list[float]:
    """Return round numbers from 0 to at least `top`, about `wanted` steps."""
    if top <= 0 or not math.isfinite(top):
        return [0.0, 1.0]
    step = _round_step(top / wanted)
    return [step * step_number for step_number in range(math.ceil(top / step - 1e-9) + 1)]


def _round_step(rough: float) -> float:
    power = 10.0 ** math.floor(math.log10(rough))
    return next(power * factor for factor in (1, 2, 2.5, 5, 10) if rough <= power * factor * (1 + 1e-9))
