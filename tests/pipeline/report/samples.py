"""Contents of reports, made by hand: a full one of a large pool, with keys that mean harm, and an empty one."""

from __future__ import annotations

import math
import random

from osrdyne_pipeline.report import content, numbers

#: Keys as clients may send them: markup, quotes, control characters, writing from right to left, wide, long, empty.
HOSTILE_KEYS = (
    "<script>alert(document.domain)</script>",
    '"><img src=x onerror=alert(1)>',
    "</title></style></svg><h1>gone</h1>",
    "{{7*7}}&lt;b&gt;",
    "\u202egnp.exe",
    "\x1b[31mred\x00",
    "空港" * 40,
    "x" * 255,
    "",
    " ",
    "]]><!--",
)
#: 2013-01-01, a Tuesday.
YEAR = 1_356_998_400_000

EMPTY = content.ReportContent(pool="empty", made_ms=YEAR, span=None, totals=content.Totals())


def full(keys: tuple[str, ...] = ()) -> content.ReportContent:
    """A year of a pool with 4,043 keys; its first keys are `keys`."""
    dice = random.Random(7)
    names = [*map(content_name, keys), *(f"N{dice.randrange(100, 999)}UA" for _ in range(20))][:20]
    labels = [numbers.day(YEAR + week * 7 * numbers.DAY_MS) for week in range(53)]
    waves = [1 + 0.3 * math.sin(week / 8) + dice.uniform(-0.1, 0.1) for week in range(53)]
    heat = [
        content.KeyHours(name, [_hour(hour) * 14 / (place + 1) for hour in range(24)])
        for place, name in enumerate(names)
    ]
    heat.append(content.KeyHours("4,023 other keys", [_hour(hour) * 60 for hour in range(24)]))
    causes = [
        content.Cause(
            reason, ending, "json 40-60 bytes", 1000 // place, 40 // place, YEAR, YEAR + numbers.DAY_MS, name, "42"
        )
        for place, (reason, ending, name) in enumerate(
            [
                ("delivery_limit", "exit 137", names[0]),
                ("expired", "no worker", names[1]),
                ("error", "answered", names[2]),
                ("invalid_key", "no worker", names[3]),
            ],
            1,
        )
    ]
    hours = [
        content.HourForecast(
            name, hour, _hour(hour) * size, _hour(hour) * size * 1.4, _hour(hour) * size / 20, _hour(hour) * size / 12
        )
        for name, size in (("heavy", 40), ("steady", 22), ("rare", 9))
        for hour in range(24)
    ]
    return content.ReportContent(
        pool="airports",
        made_ms=YEAR + 366 * numbers.DAY_MS,
        span=(YEAR, YEAR + 365 * numbers.DAY_MS),
        totals=content.Totals(
            events=2_361_220,
            requests=336_776,
            keys=4043,
            cold=91_230,
            waited_ms=91_230 * 3200,
            worst_ms=61_000,
            failed=2105,
            unknown=1200,
            up_ms=104_000 * numbers.HOUR_MS,
            busy_ms=9_000 * numbers.HOUR_MS,
        ),
        rejects=[("unknown event", 12), ("truncated", 3)],
        demand=content.Buckets(7, labels, [250 * wave for wave in waves], [670 * wave for wave in waves]),
        heat=heat,
        cold_latency=[_split(name, 1.0 + place / 9, 3200) for place, name in enumerate(["all keys", *names[:7]])],
        warm_latency=[_split(name, 0.0, 900 + place * 130) for place, name in enumerate(["all keys", *names[:7]])],
        worker_hours=content.Buckets(7, labels, [24 * wave for wave in waves], [260 * wave for wave in waves]),
        classes=[
            content.KeyClass("heavy", 41, 180_000, 2_000),
            content.KeyClass("steady", 402, 98_000, 20_000),
            content.KeyClass("rare", 3600, 58_776, 69_230),
        ],
        causes=causes,
        more_causes=(14, 22),
        key_causes=[
            content.KeyCauses(
                name,
                *((40, 3, 0) if place else (0, 12, 12)),
                YEAR if place else None,
                place == 0,
                [
                    content.EndCause(
                        *("worker-ended", "exit 1", "FileNotFoundError", place > 0, 12, YEAR + numbers.DAY_MS),
                        f"FileNotFoundError: {name}",
                        "/var/log/osrdyne/w.log",
                    ),
                    content.EndCause("handler-error", "error", "KeyError", None, 3, YEAR),
                    content.EndCause("start-failed", "no-start", None, False, 1, YEAR, "no such image"),
                ],
            )
            for place, name in enumerate([*keys[:5], "XX", "YY"])
        ],
        failing=1,
        comparison=content.Comparison(
            7,
            "2013-12-25",
            "2013-12-31",
            [
                content.MeasureChange("requests", "", 900, 1000),
                content.MeasureChange("worker-hours", "hours", 0, 3 * numbers.HOUR_MS),
                content.MeasureChange("cold-start rate", "part", 0.25, 0.125),
            ],
        ),
        slowest=[(names[0], 812, 812 * 3600)],
        forecast=content.Forecast("2014-01-01", 365, hours),
        evidence=content.ReportedEvidence(
            first_day="2013-10-20",
            last_day="2013-12-31",
            today=content.PolicyFigures("fixed 10 + 10 min", 18_300, 21_000 * numbers.HOUR_MS, 0.62),
            ours=content.PolicyFigures("ours", 11_020, 20_700 * numbers.HOUR_MS, 0.29),
            histogram=content.PolicyFigures("hybrid histogram", 12_900, 22_400 * numbers.HOUR_MS, 0.33),
            interval=(0.58, 0.63),
            reasons=[],
            changed=430,
            classes=[
                content.ClassEffect("heavy", 41, 1_200_000, 410, 120),
                content.ClassEffect("steady", 402, 2_700_000, 4_100, 1_900),
                content.ClassEffect("rare", 3600, 300_000, 13_790, 14_000),
            ],
            delays=[
                (minutes * 60_000, int(40_000 / (1 + minutes / 16)), int((3_000 + 880 * minutes) * numbers.HOUR_MS))
                for minutes in (1, 2, 5, 10, 15, 20, 30, 45, 60, 120)
            ],
            frontier=[
                (int(30_000 / (1 + hours / 9_000)), hours * numbers.HOUR_MS) for hours in range(2000, 60_000, 2000)
            ],
        ),
    )


def content_name(key: str) -> str:
    """A key as the facts name it."""
    from osrdyne_pipeline.report.element import shown

    return shown(key)


def _hour(hour: int) -> float:
    return math.sin((hour - 4) / 19 * math.pi) ** 2 if 4 < hour < 23 else 0.0


def _split(name: str, start: float, run: float) -> content.LatencySplit:
    return content.LatencySplit(name, 1234, 40 * start, 2600 * start, 130 * start + 12, run)
