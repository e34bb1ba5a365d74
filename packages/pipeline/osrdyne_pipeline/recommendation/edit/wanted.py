"""What a change writes into the settings of a pool, whichever file they are in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from osrdyne_pipeline.errors import PipelineError
from osrdyne_pipeline.recommendation.outcome import Recommendation
from osrdyne_pool.settings import Delays

#: Begins each comment of ours, so that the next change finds and replaces the override below it.
MARK = "# recommended:"


class NotChanged(PipelineError):
    """The change cannot be written to this file."""


@dataclass(frozen=True)
class WantedOverride:
    """Delays of one key, and a line that says why."""

    key: str
    delays: Delays
    note: str
    #: Whether a person had written it: then it is written without our mark.
    theirs: bool = False

    @property
    def comment(self) -> str:
        return f"{'#' if self.theirs else MARK} {self.note}"


@dataclass(frozen=True)
class WantedSettings:
    """Delays of a pool in seconds, and lines that say why. Of overrides that bear our mark, only these are left."""

    pool: str
    unbind_delay: float
    stop_delay: float
    summary: tuple[str, ...]
    overrides: tuple[WantedOverride, ...] = ()

    def beside(self, theirs: Mapping[str, Delays]) -> WantedSettings:
        """Return these settings without the overrides that a person has written alike: those stay that person's."""
        return replace(self, overrides=tuple(each for each in self.overrides if theirs.get(each.key) != each.delays))


def recommended(found: Recommendation, left: Mapping[str, Delays] = MappingProxyType({})) -> WantedSettings:
    """Return what a recommendation wants; the settings of the keys `left` stay as they are.

    Raises `NotChanged` where nothing is recommended.
    """
    if not found.recommended:
        raise NotChanged(f"there is no recommendation: {'; '.join(found.reasons)}")
    overrides = tuple(
        WantedOverride(
            each.key,
            Delays(each.unbind_delay, each.stop_delay, tuple(window.text() for window in each.warm), each.prewarm),
            f"{each.requests} requests, cold {each.cold_before} -> {each.cold_after}, "
            f"hours {each.hours_before:.0f} -> {each.hours_after:.0f}",
        )
        for each in found.overrides
    )
    overrides += tuple(WantedOverride(key, delays, "as before, for now") for key, delays in left.items())
    return WantedSettings(found.pool, found.unbind_delay, found.stop_delay, _summary(found), overrides)


def _summary(recommendation: Recommendation) -> tuple[str, ...]:
    found = recommendation.evidence
    if found is None:
        return ()
    today, ours = found.result("today"), found.result(found.offered)
    before = f"{recommendation.unbind_before:g} + {recommendation.stop_before:g} s"
    return (
        f"before {before}, replayed on {found.weeks} {found.unit} not learnt from ({found.since} to {found.until}):",
        f"cold starts {today.cold} -> {ours.cold}, worker-hours {today.worker_hours:.0f} -> {ours.worker_hours:.0f}",
    )
