"""The recommendation as text for a terminal: what would change, why to believe it, and what it does not reach."""

from __future__ import annotations

from osrdyne_pipeline.recommendation.outcome import Ratio, Recommendation, RecommendationEvidence, Setting

#: Keys shown; the rest is in the change itself.
SHOWN = 10


def render(recommendation: Recommendation) -> str:
    """Return the text, several lines, without a newline at the end."""
    asked = f"{recommendation.requests} requests of {recommendation.keys} keys"
    days = f"{recommendation.days} days ({recommendation.since} to {recommendation.until})"
    lines = [f"pool {recommendation.pool}: {asked}, {days}"]
    if recommendation.shortened:
        lines.append("older weeks were left out, to stay within memory")
    if recommendation.left_out:
        named = ", ".join(map(repr, recommendation.failing[:SHOWN]))
        more = f" and {recommendation.left_out - SHOWN} more" if recommendation.left_out > SHOWN else ""
        lines.append(f"left out, because every start fails: {named}{more}")
    if recommendation.evidence is not None:
        lines += ["", *_evidence(recommendation.evidence)]
    if recommendation.classes:
        lines += ["", "one delay for a class of keys, on the same weeks:"]
        lines += [
            f"  {row.name}: keep {duration(row.delay)}; {row.keys} keys, cold starts {row.cold_before} -> "
            f"{row.cold_after}, worker-hours {row.hours_before:.0f} -> {row.hours_after:.0f}"
            for row in recommendation.classes
        ]
    return "\n".join([*lines, "", *_advice(recommendation)])


def _evidence(found: RecommendationEvidence) -> list[str]:
    width = max(len(result.label) for result in found.results)
    head = f"{'':{width}}  {'cold':>8} {'starts':>8} {'hours':>9} {'p75 cold':>9} {'p75 start':>9}"
    rows = [
        f"{result.label:{width}}  {result.cold:>8} {result.starts:>8} {result.worker_hours:>9.0f} "
        f"{result.rate_p75:>9.1%} {result.starts_rate_p75:>9.1%}"
        for result in found.results
    ]
    weeks = f"{found.weeks} {found.unit} not learnt from ({found.since} to {found.until})"
    parts = f"cold starts {ratio(found.cold)}, 75th percentile {ratio(found.rate)}"
    return [
        f"replayed on {weeks}, each time found on the {found.train_weeks} {found.unit} before:",
        head,
        *rows,
        f"ours relative to today's: {parts}, worker-hours {ratio(found.hours)}",
    ]


def ratio(one: Ratio) -> str:
    """Return a ratio with its interval."""
    return f"{one.value:.2f} ({one.low:.2f} to {one.high:.2f})"


def _advice(recommendation: Recommendation) -> list[str]:
    if not recommendation.recommended:
        return ["no recommendation:", *(f"  {reason}" for reason in recommendation.reasons)]
    unbind = f"{duration(recommendation.unbind_before)} -> {duration(recommendation.unbind_delay)}"
    stop = f"{duration(recommendation.stop_before)} -> {duration(recommendation.stop_delay)}"
    own = f"own settings for {len(recommendation.overrides)} keys"
    lines = [f"recommended: unbind delay {unbind}, stop delay {stop}, {own}:"]
    lines += [_setting(override) for override in recommendation.overrides[:SHOWN]]
    if len(recommendation.overrides) > SHOWN:
        lines.append(f"  and {len(recommendation.overrides) - SHOWN} more")
    tried = recommendation.evidence.candidates if recommendation.evidence else ()
    return [*lines, *(f"tried, {each.label}: {'; '.join(each.reasons)}" for each in tried if each.reasons)]


def _setting(one: Setting) -> str:
    warm = f", {len(one.warm)} warm windows" if one.warm else ""
    warm += f", again {' and '.join(_span(*span) for span in one.prewarm)} after the last call" if one.prewarm else ""
    kind = f" ({one.behaviour})" if one.behaviour else ""
    return (
        f"  {one.key!r}{kind}: keep {duration(one.unbind_delay + one.stop_delay)}{warm}; {one.requests} requests, "
        f"cold {one.cold_before} -> {one.cold_after}, hours {one.hours_before:.0f} -> {one.hours_after:.0f}"
    )


def _span(begin: float, end: float) -> str:
    return f"{duration(begin)} to {duration(end)}"


def duration(seconds: float) -> str:
    """Return a duration as a person says it."""
    if seconds >= 2 * 3600:
        return f"{seconds / 3600:g} h"
    return f"{seconds / 60:g} min" if seconds >= 60 else f"{seconds:g} s"
