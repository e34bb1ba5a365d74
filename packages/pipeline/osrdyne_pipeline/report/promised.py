"""The section of the page about the last change of settings: what was promised, and what came."""

from __future__ import annotations

from xml.etree.ElementTree import Element

from osrdyne_pipeline.report import numbers
from osrdyne_pipeline.report.cards import nothing, open_table, section
from osrdyne_pipeline.report.content import ComparedMeasure, ReportContent, ReviewedChange
from osrdyne_pipeline.report.element import element, shown

#: Verdict -> what it means.
MEANS = {
    "kept": "The promise was kept.",
    "broken": "The promise was broken.",
    "not in force": "The change is not in force.",
    "not enough yet": "Too few calls came since to say more.",
}
#: Keys that are listed.
MOST_KEYS = 20


def promised_and_come(content: ReportContent) -> Element:
    """Return what the last change promised beside what came."""
    title, review = "What was promised and what came", content.review
    if review is None:
        return nothing(title, "No change was applied yet: osrdyne pipeline recommend --apply writes one.")
    days = {0: "no whole day", 1: "1 whole day"}.get(review.days, f"the last {review.days} whole days")
    lead = f"The last change is of {review.made}. Compared: {days} since. {MEANS[review.verdict]}"
    inside = [_table(review)] if review.measures else []
    if review.measures:
        inside.append(
            element(
                "p",
                "Expected is what a replay of the settings in force says of the calls that came. So more calls, or "
                "calls at other times, break no promise.",
            )
        )
    if review.broken:
        inside += [element("h3", "Keys whose promise was broken"), _keys(review)]
    return section(title, lead, *inside, *(element("p", f"{note[:1].upper()}{note[1:]}.") for note in review.notes))


def _table(review: ReviewedChange) -> Element:
    head = ["", "promised, relative to before", "before", "expected", "at least", "at most", "came"]
    return open_table(head, [_row(each, review) for each in review.measures])


def _row(one: ComparedMeasure, review: ReviewedChange) -> list[str]:
    value, low, high = one.promised
    part = f"{value:.2f} ({low:.2f} to {high:.2f})" if review.promised else "as before"
    came = "not known" if one.came is None else numbers.count(one.came)
    return [one.name, part, *map(numbers.count, (one.before, one.expected, one.low, one.high)), came]


def _keys(review: ReviewedChange) -> Element:
    rows = [
        [shown(key, 40), name, numbers.count(high), numbers.count(came)]
        for key, name, high, came in review.broken[:MOST_KEYS]
    ]
    return open_table(["key", "what", "at most", "came"], rows)
