"""What to do next: from what a report holds to a few sentences, the most useful first. Each names its numbers."""

from __future__ import annotations

import math
import shlex

from osrdyne_pipeline.report import causes, numbers
from osrdyne_pipeline.report.causes import NextStep
from osrdyne_pipeline.report.content import Forecast, ReportContent, ReportedEvidence
from osrdyne_pipeline.report.element import shown

#: Of worker time: above this, idle workers are worth a word.
MUCH_IDLE = 0.6


def next_steps(content: ReportContent) -> list[NextStep]:
    """Return what to do, at least one sentence."""
    if not content.totals.requests:
        return [
            NextStep(
                "Collect events",
                "There is no request in the tables yet, so that there is nothing to say.",
                f"osrdyne pipeline ingest --pool {content.pool} --uri-file FILE",
            )
        ]
    found = [
        *causes.steps(content),
        _last_change(content),
        _delays(content),
        _failures(content),
        _slowest(content),
        _capacity(content.forecast) if content.forecast else None,
        _unknown(content),
        _rejects(content),
    ]
    steps = [step for step in found if step is not None]
    return steps or [NextStep("Nothing to do", "No advice follows from what was recorded.")]


def _last_change(content: ReportContent) -> NextStep | None:
    review = content.review
    if review is None or not review.notes:
        return None
    why = " ".join(map(_sentence, review.notes))
    if review.goes_back:
        return NextStep(f"Go back to the settings before {review.made}", why, _change(content))
    return NextStep(f"Look at the change of {review.made}: {review.verdict}", why)


def _delays(content: ReportContent) -> NextStep | None:
    if content.key is not None or (content.review is not None and content.review.goes_back):
        return None
    evidence = content.evidence
    if evidence is None:
        return NextStep("Keep today's delays", content.no_evidence)
    if evidence.reasons:
        return NextStep("Keep today's delays", f"{_sentence('; '.join(evidence.reasons))} {_idle(content)}".strip())
    own = f", with settings of their own for {evidence.changed:,} keys" if evidence.changed else ""
    return NextStep(
        f"Review and apply other delays{own}",
        f"On held-out days, {evidence.first_day} to {evidence.last_day}: {_effect(evidence)}. "
        + _saved(evidence.today.up_ms - evidence.ours.up_ms, content.price),
        _change(content),
    )


def _change(content: ReportContent) -> str:
    """Return the command that shows the change of the files that were named last, or else of a stack's."""
    files = content.files or (("--stack", "infra/stacks/Pulumi.STACK.yaml"),)
    words = " ".join(f"{option} {shlex.quote(file)}" for option, file in files)
    return f"osrdyne pipeline recommend --pool {content.pool} {words}"


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _effect(evidence: ReportedEvidence) -> str:
    today, ours = evidence.today, evidence.ours
    return (
        f"{today.cold:,} cold starts become {ours.cold:,}, "
        f"and {numbers.hours(today.up_ms)} of workers {numbers.hours(ours.up_ms)}"
    )


def _saved(time_ms: int, price: float | None) -> str:
    """What that saves, or costs, of worker time, and in money where an hour has a price."""
    money = "" if price is None else f", {abs(time_ms) / numbers.HOUR_MS * price:,.2f} by the price of an hour"
    if abs(time_ms) < numbers.HOUR_MS / 100:
        return "Worker time stays the same."
    return f"That {'saves' if time_ms > 0 else 'takes'} {numbers.hours(abs(time_ms))} of workers{money}."


def _idle(content: ReportContent) -> str:
    totals = content.totals
    idle = totals.up_ms - totals.busy_ms
    if not totals.up_ms or idle < MUCH_IDLE * totals.up_ms:
        return ""
    return f"Workers were idle {numbers.share(idle, totals.up_ms)} of their time."


def _failures(content: ReportContent) -> NextStep | None:
    if not content.causes:
        return None
    worst, failed = content.causes[0], sum(cause.requests for cause in content.causes) + content.more_causes[1]
    keys = "one key" if worst.keys == 1 else f"{worst.keys:,} keys"
    return NextStep(
        f"Look at failures: {worst.reason}",
        f"{worst.requests:,} of {failed:,} failed requests have this cause, of {keys}, last at "
        f"{numbers.moment(worst.last_ms)}.",
        "osrdyne poison list" if worst.reason == "delivery_limit" else None,
    )


def _slowest(content: ReportContent) -> NextStep | None:
    if not content.slowest:
        return None
    key, cold, waited = content.slowest[0]
    return NextStep(
        f"Make starts of {shown(key)} faster, or rarer",
        f"Its callers waited most for workers: {numbers.duration(waited)} in {cold:,} cold starts, "
        f"{numbers.share(waited, content.totals.waited_ms)} of all such waiting.",
    )


def _capacity(forecast: Forecast) -> NextStep:
    by_hour: dict[int, tuple[float, float]] = {}
    for expected in forecast.hours:
        workers, high = by_hour.get(expected.hour, (0.0, 0.0))
        by_hour[expected.hour] = (workers + expected.workers, high + expected.workers_high)
    hour, (workers, high) = max(by_hour.items(), key=lambda pair: (pair[1][1], -pair[0]))
    room = max(1, math.ceil(high))
    # A part of a worker is not a thing to picture; the work of the hour is.
    busy = (
        f"{numbers.count(round(workers))} workers busy at once"
        if round(workers) > 1
        else f"{numbers.duration(workers * numbers.HOUR_MS)} of work"
    )
    return NextStep(
        f"Have room for {room:,} busy {'worker' if room == 1 else 'workers'} on {forecast.day}",
        f"The busiest hour is expected from {hour:02}:00 UTC, with {busy}.",
    )


def _unknown(content: ReportContent) -> NextStep | None:
    unknown, requests = content.totals.unknown, content.totals.requests
    if unknown * 100 < requests:
        return None
    return NextStep(
        "Let workers report how requests end",
        f"No event reports the end of {unknown:,} requests, {numbers.share(unknown, requests)} of all: their workers "
        "send no finished event, the requests still run, or events were lost.",
    )


def _rejects(content: ReportContent) -> NextStep | None:
    if not content.rejects:
        return None
    total = sum(number for _, number in content.rejects)
    reasons = ", ".join(f"{number:,} {reason.replace('_', ' ')}" for reason, number in content.rejects)
    return NextStep(
        "Find out who sends what is not an event",
        f"{total:,} messages were put aside: {reasons}. They are in the table rejects.",
    )
