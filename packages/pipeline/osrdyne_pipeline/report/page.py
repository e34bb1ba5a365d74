"""The page: what a report says as one HTML text that needs nothing else, no script, no font, no other file."""

from __future__ import annotations

from importlib import resources
from xml.etree.ElementTree import Element

from osrdyne_pipeline.report import advice, causes, numbers, promised, recommended, sections
from osrdyne_pipeline.report.content import ReportContent
from osrdyne_pipeline.report.element import element, html, shown


def page(content: ReportContent) -> str:
    """Return the page."""
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        # Whatever text gets into the page: nothing of it runs, and nothing is fetched.
        element("meta", http_equiv="Content-Security-Policy", content="default-src 'none'; style-src 'unsafe-inline'"),
        element("title", f"{_of(content)}: report"),
        _style(),
    )
    body = element(
        "body",
        _header(content),
        _steps(content),
        element(
            "main",
            *(part(content) for part in _PARTS if content.key is None or part not in _OF_A_POOL),
        ),
        element("footer", f"Made at {numbers.moment(content.made_ms)} UTC by osrdyne-pipeline. All times are in UTC."),
    )
    return f"<!DOCTYPE html>\n{html(element('html', head, body, lang='en'))}\n"


#: The sections, in their order.
_PARTS = (
    sections.demand,
    sections.comparison,
    promised.promised_and_come,
    recommended.before_and_after,
    recommended.trade_off,
    recommended.by_class,
    sections.heat,
    sections.latency,
    sections.workers,
    sections.failures,
    causes.why_workers_end,
    causes.keys_to_look_at,
    sections.forecast,
    sections.classes,
)
#: Of these, those that say nothing of one key.
_OF_A_POOL = (
    promised.promised_and_come,
    recommended.before_and_after,
    recommended.by_class,
    sections.forecast,
)


def _of(content: ReportContent) -> str:
    return content.pool if content.key is None else f"{content.pool}, key {shown(content.key)}"


def _style() -> Element:
    sheet = element("style")
    # A style sheet's text is not escaped: it is ours.
    sheet.text = resources.files(__package__).joinpath("page.css").read_text(encoding="utf-8")
    return sheet


def _header(content: ReportContent) -> Element:
    totals = content.totals
    span = "No requests yet"
    if content.span is not None:
        days = max(1, round((content.span[1] - content.span[0]) / numbers.DAY_MS))
        span = f"{numbers.day(content.span[0])} to {numbers.day(content.span[1] - 1)}, {days:,} day{'s'[: days - 1]}"
    span += f", {totals.events:,} events."
    tiles = [
        _tile(
            "requests",
            numbers.count(totals.requests),
            "of this key" if content.key is not None else f"of {totals.keys:,} keys",
        ),
        _tile("cold starts", numbers.count(totals.cold), f"{numbers.share(totals.cold, totals.requests)} of requests"),
        _tile(
            "wait of a cold start",
            numbers.duration(totals.waited_ms / totals.cold) if totals.cold else "–",
            f"at worst {numbers.duration(totals.worst_ms)}" if totals.cold else "there was none",
        ),
        _tile(
            "worker-hours",
            numbers.hours(totals.up_ms),
            f"busy {numbers.share(totals.busy_ms, totals.up_ms)} of them" if totals.up_ms else "no start was seen",
        ),
        *_effect(content),
        _tile("failed", numbers.count(totals.failed), f"{numbers.share(totals.failed, totals.requests)} of requests"),
    ]
    return element(
        "header", element("h1", f"Pool {_of(content)}"), element("p", span), element("dl", *tiles, class_="tiles")
    )


def _effect(content: ReportContent) -> list[Element]:
    if content.evidence is None or content.evidence.reasons or not content.evidence.today.cold:
        return []
    today, ours = content.evidence.today, content.evidence.ours
    change = numbers.change(today.cold, ours.cold)
    more = f"{numbers.short(today.cold)} → {numbers.short(ours.cold)}, held-out days"
    return [_tile("cold starts, if applied", change, more)]


def _tile(name: str, value: str, more: str) -> Element:
    return element("div", element("dt", name), element("dd", value, class_="value"), element("dd", more))


def _steps(content: ReportContent) -> Element:
    items = [
        element(
            "li",
            element("strong", step.what),
            element("p", step.why),
            element("code", step.command) if step.command else None,
        )
        for step in advice.next_steps(content)
    ]
    return element("section", element("h2", "What to do next"), element("ol", *items))
