"""The sections of the page about what happened: what a report says as elements; where there is no data, they say so."""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree.ElementTree import Element

from osrdyne_pipeline.report import numbers
from osrdyne_pipeline.report.cards import legend, nothing, open_table, section, table
from osrdyne_pipeline.report.charts.bars import bars
from osrdyne_pipeline.report.charts.columns import columns
from osrdyne_pipeline.report.charts.frame import Series
from osrdyne_pipeline.report.charts.heatmap import heatmap, thresholds
from osrdyne_pipeline.report.content import Buckets, LatencySplit, ReportContent
from osrdyne_pipeline.report.element import element, shown

_PARTS = ("orphan", "start", "queue", "run")
_STRETCHES = {0: "an hour", 1: "a day", 7: "a day, mean of each week", 28: "a day, mean of each four weeks"}


def demand(content: ReportContent) -> Element:
    """Return requests over time, cold ones apart."""
    title, found = "Demand over time", content.demand
    if found is None:
        return nothing(title, "No request was seen.")
    series = [Series("cold", "cold", found.first), Series("warm", "warm", found.second)]
    lead = f"Requests {_stretch(found)}; cold ones found no worker."
    return section(
        title,
        lead,
        columns(title, _over(found, "requests"), _dates(found), series),
        legend(series),
        table(["from (UTC)", "cold", "warm"], _rows(found)),
    )


def comparison(content: ReportContent) -> Element:
    """Return the last days beside as many before them."""
    title, found = "The last days and those before", content.comparison
    if found is None:
        return nothing(title, "There are no two whole days to compare.")
    shown_as = {
        "": numbers.count,
        "part": lambda value: numbers.share(value, 1),
        "ms": numbers.duration,
        "hours": numbers.hours,
    }
    rows = [
        [row.name, shown_as[row.unit](row.before), shown_as[row.unit](row.now), numbers.change(row.before, row.now)]
        for row in found.changes
    ]
    stretch = "day" if found.days == 1 else f"{found.days} days"
    lead = f"{found.first_day} to {found.last_day}, beside the {stretch} before."
    return section(title, lead, open_table(["", "before", "now", "change"], rows))


def heat(content: ReportContent) -> Element:
    """Return keys by hour of the day."""
    title = "Keys by hour of the day"
    if not content.heat:
        return nothing(title, "No request was seen.")
    # The row of all others would make every key look alike.
    rows = (
        content.heat[:-1] if len(content.heat) > 1 and content.heat[-1].name.endswith(" other keys") else content.heat
    )
    named = [f"{hour:02}" for hour in range(24)]
    values = [row.hours for row in rows]
    drawn = heatmap(title, f"{len(rows)} keys, hours 0 to 23 in UTC", [row.name for row in rows], values, named)
    head = ["key", *named]
    listed = [[row.name, *(numbers.count(value) for value in row.hours)] for row in content.heat]
    lead = "Requests in each hour of the day (UTC), mean of a day, of the keys that are asked for most."
    return section(title, lead, drawn, _steps(thresholds(values)), table(head, listed))


def latency(content: ReportContent) -> Element:
    """Return where the time of requests goes, cold and warm ones apart."""
    title = "Where the time goes"
    if not (content.cold_latency or content.warm_latency):
        return nothing(title, "No request has a known end, so that no latency can be taken apart.")
    charts: list[Element] = []
    listed: list[list[str]] = []
    for name, splits in (("Cold requests", content.cold_latency), ("Warm requests", content.warm_latency)):
        if splits:
            drawn = bars(name, _means(splits), [split.name for split in splits], _parts(splits), exact=numbers.duration)
            charts += [element("h3", name), drawn]
            listed += [_split_row(name, split) for split in splits]
        else:
            charts += [element("h3", name), element("p", "There were none with a known end.", class_="nothing")]
    lead = "Mean time of a finished request: waiting as an orphan, for its worker to start, in its queue, and running."
    more = table(["", "key", "requests", *_PARTS, "total"], listed)
    return section(title, lead, *charts, legend(_parts([])), more)


def workers(content: ReportContent) -> Element:
    """Return worker-hours, busy and idle."""
    title, found = "Worker-hours", content.worker_hours
    if found is None:
        return nothing(title, "No start of a worker group was seen.")
    series = [Series("busy", "busy", found.first), Series("idle", "idle", found.second)]
    lead = f"Hours {_stretch(found)} in which workers were up: busy, and idle."
    drawn = columns(title, _over(found, "worker-hours"), _dates(found), series)
    return section(title, lead, drawn, legend(series), table(["from (UTC)", "busy h", "idle h"], _rows(found)))


def failures(content: ReportContent) -> Element:
    """Return failures by cause."""
    title = "Failures by cause"
    if not content.causes:
        known = content.totals.requests - content.totals.unknown
        return nothing(
            title, f"None: no request of {known:,} with a known end failed." if known else "Nothing is known."
        )
    names = [f"{cause.reason}, {cause.worker_exit}" for cause in content.causes]
    series = [Series("requests", "failed", [cause.requests for cause in content.causes])]
    lead = "Requests without a good answer, grouped by reason, by how workers ended, and by the shape of the message."
    if content.more_causes[0]:
        lead += f" {content.more_causes[0]:,} more causes have {content.more_causes[1]:,} requests."
    head = ["reason", "worker", "shape", "requests", "keys", "first (UTC)", "last (UTC)", "example"]
    listed = [
        [
            cause.reason,
            cause.worker_exit,
            cause.shape,
            numbers.count(cause.requests),
            numbers.count(cause.keys),
            numbers.moment(cause.first_ms),
            numbers.moment(cause.last_ms),
            f"{shown(cause.example_key, 40)}, {shown(cause.example_request_id, 40)}",
        ]
        for cause in content.causes
    ]
    return section(title, lead, bars(title, "Requests by cause", names, series, gutter=230.0), table(head, listed))


def forecast(content: ReportContent) -> Element:
    """Return what the next day is expected to need."""
    title, found = "Capacity for the next day", content.forecast
    if found is None:
        return nothing(title, "There is too little history for a forecast.")
    classes = sorted(
        {hour.key_class for hour in found.hours},
        key=lambda name: (_CLASSES.index(name) if name in _CLASSES else 9, name),
    )
    values = {(hour.key_class, hour.hour): hour for hour in found.hours}

    def worth(name: str, attribute: str) -> list[float]:
        return [getattr(values.get((name, hour)), attribute, 0.0) for hour in range(24)]

    series = [Series(name, f"class{place % 4}", worth(name, "workers")) for place, name in enumerate(classes)]
    high = [sum(worth(name, "workers_high")[hour] for name in classes) for hour in range(24)]
    upper = Series("upper bound", "upper", high)
    named = [f"{hour:02}" for hour in range(24)]
    drawn = columns(title, "Busy workers by hour of the day, UTC", named, series, upper=upper, exact=_workers)
    requests = [sum(worth(name, "requests")[hour] for name in classes) for hour in range(24)]
    listed = [
        [
            hour,
            numbers.count(requests[place]),
            _workers(sum(row.values[place] for row in series)),
            _workers(high[place]),
        ]
        for place, hour in enumerate(named)
    ]
    lead = (
        f"Workers that are busy at once on {found.day}, by hour (UTC) and key class, with the sum of the classes' "
        f"upper bounds. It stands on {found.days_of_history:,} days."
    )
    return section(
        title, lead, drawn, legend([*series, upper]), table(["hour", "requests", "workers", "at most"], listed)
    )


def classes(content: ReportContent) -> Element:
    """Return how many keys are heavy, steady, rare."""
    title = "Heavy and rare keys"
    if not content.classes:
        return nothing(title, "No request was seen.")
    requests, cold = content.totals.requests, content.totals.cold
    names = [f"{row.name} ({row.keys:,})" for row in content.classes]
    drawn = [
        element("h3", "Requests"),
        bars(
            "Requests", "By key class", names, [Series("requests", "warm", [row.requests for row in content.classes])]
        ),
        element("h3", "Cold starts"),
        bars("Cold starts", "By key class", names, [Series("cold", "cold", [row.cold for row in content.classes])]),
    ]
    listed = [
        [row.name, numbers.count(row.keys), numbers.share(row.requests, requests), numbers.share(row.cold, cold)]
        for row in content.classes
    ]
    lead = (
        "Few keys bring most requests; the many rare ones bring the cold starts."
        if _long_tail(content)
        else "Key classes."
    )
    return section(title, lead, *drawn, table(["class", "keys", "of requests", "of cold starts"], listed))


#: Key classes in the order in which they are shown.
_CLASSES = ("heavy", "steady", "rare")


def _stretch(found: Buckets) -> str:
    return _STRETCHES.get(found.days, "a day, mean of each year")


def _dates(found: Buckets) -> list[str]:
    """Labels of an axis: the hour of the day only where there is one day, the year only in the tables."""
    short = [label[5:] for label in found.labels]
    return [label[6:] for label in short] if found.days == 0 and len({label[:5] for label in short}) == 1 else short


def _over(found: Buckets, what: str) -> str:
    return f"{what} {_stretch(found)} from {found.labels[0]} to {found.labels[-1]}"


def _rows(found: Buckets) -> list[list[str]]:
    return [
        [label, numbers.count(first), numbers.count(two)]
        for label, first, two in zip(found.labels, found.first, found.second, strict=True)
    ]


def _parts(splits: Sequence[LatencySplit]) -> list[Series]:
    return [Series(part, f"part-{part}", [getattr(split, f"{part}_ms") for split in splits]) for part in _PARTS]


def _split_row(name: str, one: LatencySplit) -> list[str]:
    parts = [getattr(one, f"{part}_ms") for part in _PARTS]
    return [
        name.split(maxsplit=1)[0].lower(),
        one.name,
        numbers.count(one.requests),
        *map(numbers.duration, (*parts, sum(parts))),
    ]


def _means(splits: Sequence[LatencySplit]) -> str:
    return f"Mean time of all keys {numbers.duration(sum(getattr(splits[0], f'{part}_ms') for part in _PARTS))}"


def _steps(begins: Sequence[float]) -> Element:
    marks = [element("li", element("i", class_="swatch heat0"), "none")]
    marks += [
        element("li", element("i", class_=f"swatch heat{step}"), f"from {numbers.count(begin)}")
        for step, begin in enumerate(begins, 1)
    ]
    return element("ul", *marks, class_="legend")


def _workers(number: float) -> str:
    return f"{number:.1f}"


def _long_tail(content: ReportContent) -> bool:
    rare = [row for row in content.classes if row.name == "rare"]
    return bool(rare) and 2 * rare[0].cold > content.totals.cold and 2 * rare[0].requests < content.totals.requests
