"""What a report says, as plain values: bounded, whatever the pool's size. Times and durations in milliseconds."""

from __future__ import annotations

from dataclasses import dataclass, field

#: In the address of a link: what the key is put in the place of.
KEY_PLACE = "{key}"


@dataclass(frozen=True)
class Totals:
    """The pool as a whole, over all days that the tables hold."""

    events: int = 0
    requests: int = 0
    keys: int = 0
    #: Requests that found no bound queue, and how long they waited for a worker, together and at worst.
    cold: int = 0
    waited_ms: int = 0
    worst_ms: int = 0
    #: Requests with an error for an answer, and those whose end no event reports.
    failed: int = 0
    unknown: int = 0
    up_ms: int = 0
    busy_ms: int = 0


@dataclass(frozen=True)
class Buckets:
    """Values over time, one a stretch of `days` days (an hour where that is 0), as the mean of a day where longer."""

    days: int
    labels: list[str]
    first: list[float]
    second: list[float]


@dataclass(frozen=True)
class KeyHours:
    """Requests of one key, or of all that have no row of their own, in each hour of the day (UTC), mean of a day."""

    name: str
    hours: list[float]


@dataclass(frozen=True)
class LatencySplit:
    """The mean latency of finished requests, taken apart."""

    name: str
    requests: int
    orphan_ms: float
    start_ms: float
    queue_ms: float
    run_ms: float


@dataclass(frozen=True)
class KeyClass:
    """How many keys are of a class, and what they ask for."""

    name: str
    keys: int
    requests: int
    cold: int


@dataclass(frozen=True)
class Cause:
    """Failures with one cause."""

    reason: str
    worker_exit: str
    shape: str
    requests: int
    keys: int
    first_ms: int
    last_ms: int
    example_key: str
    example_request_id: str


@dataclass(frozen=True)
class EndCause:
    """Ends of workers, failed starts or errors of the handler of a key, with the same cause; see `gold/causes`."""

    what: str
    how: str
    error: str | None
    #: Whether the worker had said `started`; None where that is not known, or it is the handler that failed.
    began: bool | None
    times: int
    last_ms: int
    #: A line of the last worker's output, or the reason; and where its whole output is.
    example: str | None = None
    log: str | None = None


@dataclass(frozen=True)
class KeyCauses:
    """How starts of a key's workers went, and the causes of what went wrong, the most frequent first."""

    key: str
    started: int
    failed: int
    #: Failed starts since a worker of it last showed that it works, and when that was; None: it never did.
    failed_since: int
    good_ms: int | None
    #: Whether every start fails; see `recommendation.choices.failing`.
    failing: bool
    causes: list[EndCause]


@dataclass(frozen=True)
class MeasureChange:
    """A measure of the last days beside the same number of days before.

    The unit is how it is shown: as a number, as a `part` of 1 in per cent, and milliseconds as `ms` or `hours`.
    """

    name: str
    unit: str
    before: float
    now: float


@dataclass(frozen=True)
class Comparison:
    """The last days of the tables beside as many before them."""

    days: int
    first_day: str
    last_day: str
    changes: list[MeasureChange]


@dataclass(frozen=True)
class HourForecast:
    """What an hour of the day after the last is expected to ask for, of one key class; `high` is the upper bound."""

    key_class: str
    hour: int
    requests: float
    requests_high: float
    workers: float
    workers_high: float


@dataclass(frozen=True)
class Forecast:
    """The forecast, and the days that it stands on."""

    day: str
    days_of_history: int
    hours: list[HourForecast]


@dataclass(frozen=True)
class PolicyFigures:
    """What a policy does on the held-out days."""

    label: str
    cold: int
    up_ms: int
    #: Of the keys' cold-start rates, the 75th percentile.
    p75_rate: float


@dataclass(frozen=True)
class ClassEffect:
    """Cold starts of a key class on the held-out days, with today's delays and with the best single one for it."""

    name: str
    keys: int
    delay_ms: int
    before: int
    after: int


@dataclass(frozen=True)
class ReportedEvidence:
    """What the recommendation would have done on days that it was not made from."""

    first_day: str
    last_day: str
    today: PolicyFigures
    ours: PolicyFigures
    histogram: PolicyFigures | None
    #: The recommendation's cold starts relative to today's: bounds of the 95 % confidence interval.
    interval: tuple[float, float]
    #: Why nothing is recommended all the same; empty where something is.
    reasons: list[str]
    #: Keys that get settings of their own.
    changed: int
    classes: list[ClassEffect] = field(default_factory=list)
    #: What was to get less: `cold` starts, or worker-`hours`.
    goal: str = "cold"
    #: Fixed delays tried on the same days: delay, cold starts and worker time of all keys.
    delays: list[tuple[int, int, int]] = field(default_factory=list)
    #: What settings of their own for keys can reach: cold starts and worker time, from the cheapest on.
    frontier: list[tuple[int, int]] = field(default_factory=list)


@dataclass(frozen=True)
class ComparedMeasure:
    """Cold starts or worker-hours since the last change; `came` is None where it is not known."""

    name: str
    #: Relative to before: promised, and the bounds of the promise.
    promised: tuple[float, float, float]
    before: float
    expected: float
    low: float
    high: float
    came: float | None


@dataclass(frozen=True)
class ReviewedChange:
    """What became of the last change of settings."""

    made: str
    #: `kept`, `broken`, `not in force` or `not enough yet`.
    verdict: str
    days: int
    measures: list[ComparedMeasure]
    #: Keys whose promise was broken: key, what it was about, expected at most, and what came.
    broken: list[tuple[str, str, float, float]]
    notes: list[str]
    #: Whether the next step is to go back.
    goes_back: bool
    #: Whether anything was promised, beyond being as before.
    promised: bool = True


@dataclass(frozen=True)
class ReportContent:
    """Everything on the page."""

    pool: str
    made_ms: int
    #: First hour with a request, and the end of the last; None where there are no requests.
    span: tuple[int, int] | None
    totals: Totals
    rejects: list[tuple[str, int]] = field(default_factory=list)
    #: None where there are not two whole days.
    comparison: Comparison | None = None
    demand: Buckets | None = None
    heat: list[KeyHours] = field(default_factory=list)
    cold_latency: list[LatencySplit] = field(default_factory=list)
    warm_latency: list[LatencySplit] = field(default_factory=list)
    worker_hours: Buckets | None = None
    classes: list[KeyClass] = field(default_factory=list)
    causes: list[Cause] = field(default_factory=list)
    #: Causes beyond those listed, and their requests.
    more_causes: tuple[int, int] = (0, 0)
    #: Keys whose starts fail, workers end or handlers raise: those first that cannot be started at all.
    key_causes: list[KeyCauses] = field(default_factory=list)
    #: How many keys cannot be started at all.
    failing: int = 0
    #: Keys whose callers waited most for cold starts, and most of whose starts do not fail: key, cold requests, waited
    #: together.
    slowest: list[tuple[str, int, int]] = field(default_factory=list)
    forecast: Forecast | None = None
    #: Total cold starts and worker time by delay, over all days.
    delays: list[tuple[int, int, int]] = field(default_factory=list)
    evidence: ReportedEvidence | None = None
    #: None where no change was applied.
    review: ReviewedChange | None = None
    #: The files that have the settings, each with the option of `recommend` that names it; none where none was named.
    files: tuple[tuple[str, str], ...] = ()
    #: What has more of a key: a name each, and its address with `{key}` in it.
    links: tuple[tuple[str, str], ...] = ()
    #: The price of an hour of a worker, where a person gave one.
    price: float | None = None
    #: Of which key all of this is; None where it is of the whole pool. Advice on delays is of the pool.
    key: str | None = None
    #: Why there is no recommendation, where there is none.
    no_evidence: str = "No recommendation was made yet: osrdyne pipeline recommend makes one."
