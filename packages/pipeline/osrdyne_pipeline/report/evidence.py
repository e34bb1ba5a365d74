"""What a recommendation says of itself (recommendation.json), as the report shows it."""

from __future__ import annotations

from typing import Any

from osrdyne_pipeline.report.content import (
    ClassEffect,
    ComparedMeasure,
    PolicyFigures,
    ReportedEvidence,
    ReviewedChange,
)
from osrdyne_pipeline.report.numbers import HOUR_MS


def evidence(document: dict[str, Any]) -> ReportedEvidence | None:
    """Return the evidence of a recommendation; None where the history was too short for any."""
    found = document.get("evidence")
    if not found:
        return None
    results = {result["name"]: _policy(result) for result in found["results"]}
    return ReportedEvidence(
        first_day=found["since"],
        last_day=found["until"],
        today=results["today"],
        ours=results[found.get("offered", "ours")],
        histogram=results.get("histogram"),
        interval=(found["cold"]["low"], found["cold"]["high"]),
        reasons=list(document["reasons"]),
        changed=len(document["overrides"]),
        goal="hours" if document.get("goal") == "hours" else "cold",
        classes=[
            ClassEffect(row["name"], row["keys"], round(1000 * row["delay"]), row["cold_before"], row["cold_after"])
            for row in document["classes"]
        ],
        delays=[(round(1000 * point["delay"]), *_point(point)) for point in document["fixed_curve"]],
        frontier=[_point(point) for point in document["our_curve"]],
    )


def review(document: dict[str, Any]) -> ReviewedChange | None:
    """Return what became of the last change; None where no change was applied."""
    found = document.get("review")
    if not found:
        return None
    total = found["total"] or {}
    broken = [
        (key, name, measure.high, measure.came)
        for key, compared in found["keys"]
        if compared["verdict"] == "broken"
        for name, measure in ((name, _measure(name, compared[field])) for name, field in _MEASURES)
        if measure.came is not None and measure.came > measure.high
    ]
    return ReviewedChange(
        found["at"],
        found["verdict"],
        found["days"],
        [_measure(name, total[field]) for name, field in _MEASURES if field in total],
        broken,
        list(found["notes"]),
        bool(document["goes_back"]),
        bool(found["promised"]),
    )


#: Title of a measure -> its name in a review.
_MEASURES = (("cold starts", "cold"), ("worker-hours", "hours"))


def _measure(name: str, one: dict[str, Any]) -> ComparedMeasure:
    ratio, came = one["promised"], one["came"]
    before, expected, low, high = (float(one[field]) for field in ("before", "expected", "low", "high"))
    promised = (ratio["value"], ratio["low"], ratio["high"])
    return ComparedMeasure(name, promised, before, expected, low, high, None if came is None else float(came))


def _policy(result: dict[str, Any]) -> PolicyFigures:
    return PolicyFigures(result["label"], *_point(result), result["rate_p75"])


def _point(one: dict[str, Any]) -> tuple[int, int]:
    return round(one["cold"]), round(HOUR_MS * one["worker_hours"])
