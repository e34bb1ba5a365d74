"""What a recommendation says of itself (recommendation.json), as the report shows it."""

from __future__ import annotations

from typing import Any

from osrdyne_pipeline.report.content import ClassEffect, PolicyFigures, ReportedEvidence
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


def _policy(result: dict[str, Any]) -> PolicyFigures:
    return PolicyFigures(result["label"], *_point(result), result["rate_p75"])


def _point(one: dict[str, Any]) -> tuple[int, int]:
    return round(one["cold"]), round(HOUR_MS * one["worker_hours"])
