"""The sections of the page about what would be better, with the numbers of the days on which that was tried."""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree.ElementTree import Element

from osrdyne_pipeline.report import numbers
from osrdyne_pipeline.report.cards import legend, nothing, section, table
from osrdyne_pipeline.report.charts.bars import bars, pairs
from osrdyne_pipeline.report.charts.frame import Series
from osrdyne_pipeline.report.charts.tradeoff import ChartPoint, tradeoff
from osrdyne_pipeline.report.content import PolicyFigures, ReportContent, ReportedEvidence
from osrdyne_pipeline.report.element import element

#: Goal of a recommendation -> which classes are shown.
_BETTER = {
    "cold": "Classes that do no better so are left out.",
    "hours": "The goal was fewer worker-hours: classes with no fewer are left out, and cold starts may be some more.",
}


def before_and_after(content: ReportContent) -> Element:
    """Return cold starts and worker-hours with today's delays and with the recommended ones."""
    title, evidence = "Cold starts before and after", content.evidence
    if evidence is None:
        return nothing(title, content.no_evidence)
    policies = _policies(evidence)
    names = [name for name, _, _ in policies]
    cold = _each([(name, style, policy.cold) for name, policy, style in policies])
    hours = _each([(name, style, policy.up_ms / numbers.HOUR_MS) for name, policy, style in policies])
    lead = f"Replay of days that the recommendation did not see, {evidence.first_day} to {evidence.last_day}."
    inside = [
        element("h3", "Cold starts"),
        bars("Cold starts", "By policy", names, cold),
        element("h3", "Worker-hours"),
        bars("Worker-hours", "By policy", names, hours),
        *(element("p", note) for note in _notes(evidence)),
    ]
    listed = [
        [name, numbers.count(policy.cold), numbers.hours(policy.up_ms), _percent(policy.p75_rate)]
        for name, policy, _ in policies
    ]
    numbered = table(["policy", "cold starts", "worker-hours", "cold requests, at most, of three keys in four"], listed)
    return section(title, lead, *inside, numbered)


def by_class(content: ReportContent) -> Element:
    """Return what one delay for each class of keys would do."""
    title, evidence = "One delay for each class of keys", content.evidence
    if evidence is None:
        return nothing(title, content.no_evidence)
    if not evidence.classes:
        return nothing(title, "No class of keys does better with one delay of its own than with today's delays.")
    names = [f"{row.name}: {numbers.duration(row.delay_ms)}" for row in evidence.classes]
    before = Series("today's delays", "before", [row.before for row in evidence.classes])
    after = Series("that delay", "after", [row.after for row in evidence.classes])
    lead = (
        "The simplest change: cold starts on the same held-out days, if a class of keys had one delay. "
        f"{_BETTER[evidence.goal]} Settings for single keys reach more."
    )
    listed = [[row.name, *map(numbers.count, (row.keys, row.before, row.after))] for row in evidence.classes]
    drawn = pairs(title, "By key class", names, before, after)
    return section(title, lead, drawn, legend([before, after]), table(["class", "keys", "before", "after"], listed))


def trade_off(content: ReportContent) -> Element:
    """Return the curve of cold starts against worker-hours."""
    title, evidence = "What fewer cold starts cost", content.evidence
    if evidence is None and not content.delays:
        return nothing(title, "No delay was tried yet: osrdyne pipeline recommend tries them.")
    tried = content.delays if evidence is None else evidence.delays
    line = [ChartPoint(numbers.duration(delay), up / numbers.HOUR_MS, cold) for delay, cold, up in tried]
    found = [] if evidence is None else _policies(evidence)
    marked = [ChartPoint(name, policy.up_ms / numbers.HOUR_MS, policy.cold, style) for name, policy, style in found]
    best = [] if evidence is None else [ChartPoint("", up / numbers.HOUR_MS, cold) for cold, up in evidence.frontier]
    days = "all days" if evidence is None else "the held-out days"
    lead = (
        f"Each small point keeps every idle group for that long, on {days}. Left and low is better: fewer "
        "worker-hours, fewer cold starts."
    )
    if evidence is None:
        lead += " " + content.no_evidence
    listed = [[point.name, numbers.count(point.cold), numbers.count(point.hours)] for point in (*marked, *line)]
    drawn = tradeoff(title, "Cold starts by worker-hours, for fixed delays and for policies", line, marked, best)
    shown_lines = [Series("one delay for all keys", "line-fixed", [])]
    shown_lines += [Series("settings by key", "line-ours", [])] if best else []
    return section(title, lead, drawn, legend(shown_lines), table(["policy", "cold starts", "worker-hours"], listed))


def _policies(evidence: ReportedEvidence) -> list[tuple[str, PolicyFigures, str]]:
    found = [("today", evidence.today, "before")]
    if evidence.histogram is not None:
        found.append(("histogram policy", evidence.histogram, "peer"))
    return [*found, ("recommended" if not evidence.reasons else "best found", evidence.ours, "after")]


def _each(values: Sequence[tuple[str, str, float]]) -> list[Series]:
    """One series a row, so that each row has a colour of its own."""
    return [
        Series(name, style, [value if row == place else 0.0 for row in range(len(values))])
        for place, (name, style, value) in enumerate(values)
    ]


def _percent(rate: float) -> str:
    return numbers.share(rate, 1)


def _notes(evidence: ReportedEvidence) -> list[str]:
    low, high = (100 * (bound - 1) for bound in evidence.interval)
    change = (
        f"Cold starts change by {low:+.1f} % to {high:+.1f} % with 95 % confidence. Of three keys in four, at most "
        f"{_percent(evidence.today.p75_rate)} of the requests are cold with today's settings, and at most "
        f"{_percent(evidence.ours.p75_rate)} with the others."
    )
    return [change, *([f"Nothing is recommended: {'; '.join(evidence.reasons)}."] if evidence.reasons else [])]
