"""What a recommendation says, as plain values: for the text, the report, and the change. Delays are seconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from osrdyne_pipeline.recommendation.warm import WarmWindow


@dataclass(frozen=True)
class PolicyResult:
    """What one policy would have done on held-out weeks."""

    name: str
    label: str
    requests: int
    #: Requests that found no bound queue, and of these those whose group had been stopped.
    cold: int
    starts: int
    worker_hours: float
    #: 75th percentile over keys of the share of a key's requests that were cold, and that started a group.
    rate_p75: float
    starts_rate_p75: float
    keys: int


@dataclass(frozen=True)
class Ratio:
    """Ours relative to today's, with the 95 % interval of a bootstrap over held-out weeks or days."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class EvidenceTarget:
    """Something that was asked of a recommendation, and what was found."""

    text: str
    wanted: float
    found: float
    reached: bool


@dataclass(frozen=True)
class CandidateResult:
    """One kind of settings, and why it is not offered; no reasons where it can be."""

    name: str
    label: str
    #: Hours relative to today's, as its fits promised them.
    promised: float
    cold: Ratio
    hours: Ratio
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class RecommendationEvidence:
    """The replay on held-out weeks: each fold learns from the weeks before its own."""

    since: str
    until: str
    train_weeks: int
    weeks: int
    folds: int
    results: tuple[PolicyResult, ...]
    cold: Ratio
    rate: Ratio
    hours: Ratio
    targets: tuple[EvidenceTarget, ...]
    #: What was tried, from what can do most on, and which of these is offered, or came nearest.
    candidates: tuple[CandidateResult, ...] = ()
    offered: str = "ours"
    #: What `train_weeks` and `weeks` count: `weeks`, or `days` where the history is short.
    unit: str = "weeks"

    def result(self, name: str) -> PolicyResult:
        return next(result for result in self.results if result.name == name)


@dataclass(frozen=True)
class PromisedEffect:
    """What a change is to bring to a key, or to all: counted on days that it was not learnt from."""

    requests: int
    cold_before: int
    cold_after: int
    hours_before: float
    hours_after: float
    #: After, relative to before.
    cold: Ratio
    hours: Ratio


@dataclass(frozen=True)
class Promise:
    """What a change is to bring: in total, and to keys with settings of their own."""

    total: PromisedEffect
    keys: Mapping[str, PromisedEffect]


@dataclass(frozen=True)
class Setting:
    """One key's own delays; what they change is counted over the last `train_weeks`."""

    key: str
    unbind_delay: float
    stop_delay: float
    warm: tuple[WarmWindow, ...]
    requests: int
    cold_before: int
    cold_after: int
    hours_before: float
    hours_after: float
    #: Spans after its last activity in which it is made active again: begin and end.
    prewarm: tuple[tuple[float, float], ...] = ()
    #: How it is called; one of `behaviour.BEHAVIOURS`.
    behaviour: str = ""


@dataclass(frozen=True)
class ClassAdvice:
    """What would be best for a class of keys, if all of them had one delay: found before the held-out weeks, counted
    on them.
    """

    name: str
    keys: int
    requests: int
    #: How long a group is kept: unbind and stop delay together.
    delay: float
    cold_before: int
    cold_after: int
    hours_before: float
    hours_after: float


@dataclass(frozen=True)
class TradeoffPoint:
    """Of a trade-off curve, counted on the held-out weeks."""

    #: One delay for all keys; None where each has its own.
    delay: float | None
    cold: float
    worker_hours: float


@dataclass(frozen=True)
class Recommendation:
    """All of it. Where `reasons` says why there is none, delays are today's and there are no overrides."""

    pool: str
    recommended: bool
    reasons: tuple[str, ...]
    goal: str
    since: str
    until: str
    days: int
    keys: int
    requests: int
    #: Whether older weeks were left out to stay within memory.
    shortened: bool
    unbind_before: float
    stop_before: float
    unbind_delay: float
    stop_delay: float
    overrides: tuple[Setting, ...]
    classes: tuple[ClassAdvice, ...]
    fixed_curve: tuple[TradeoffPoint, ...]
    our_curve: tuple[TradeoffPoint, ...]
    evidence: RecommendationEvidence | None
    #: Keys that were left out, because every start of their workers fails: how many, and the first of them.
    left_out: int = 0
    failing: tuple[str, ...] = ()
    #: What the change is to bring; None where nothing is recommended.
    promise: Promise | None = None

    def to_json(self) -> dict[str, Any]:
        """Return what `json` can write."""
        return asdict(self)
