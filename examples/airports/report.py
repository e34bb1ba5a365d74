"""What a replay shows: the numbers, the table, and the last line.

Pure: reads outcomes, returns values and texts.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.table import Table

from examples.airports import replay

#: Gives the answer that a worker should give to a key and a question.
Expected = Callable[[str, dict[str, Any]], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Latency:
    """Seconds from a request to its reply."""

    count: int
    p50: float | None
    p95: float | None
    most: float | None

    @classmethod
    def of(cls, outcomes: Sequence[replay.Outcome]) -> Latency:
        """Return the latency of these requests; without any, no numbers."""
        ordered = sorted(outcome.latency for outcome in outcomes)
        return cls(len(ordered), _rank(ordered, 0.5), _rank(ordered, 0.95), _rank(ordered, 1.0))


@dataclass(frozen=True, slots=True)
class Report:
    """The numbers of one replay."""

    requests: int
    destinations: int
    answered: int
    #: Answered otherwise than from the whole table, or with an error.
    wrong: int
    #: Without an answer in time.
    lost: int
    #: Requests that started their worker, as their caller saw them.
    cold: Latency
    #: Requests that were sent while their worker was starting for another one.
    waited: Latency
    warm: Latency
    #: As the daemon reported; None where the events could not be read.
    groups_started: int | None
    groups_stopped: int | None
    #: Why requests were wrong or lost, the most frequent reasons first.
    reasons: list[tuple[str, int]]

    @property
    def good(self) -> bool:
        """Whether every request was answered rightly."""
        return self.wrong == 0 and self.lost == 0

    @property
    def last_line(self) -> str:
        """The line that a script looks for."""
        return f"demo: requests={self.requests} answered={self.answered} wrong={self.wrong} lost={self.lost}"


def check(outcomes: Sequence[replay.Outcome], expected: Expected) -> list[str]:
    """Return for each request what is wrong with its answer; "" where nothing is, or where there is none."""
    return [_fault(outcome, expected) for outcome in outcomes]


def make(outcomes: Sequence[replay.Outcome], faults: Sequence[str], groups: tuple[int | None, int | None]) -> Report:
    """Return the numbers of a replay, its faults as `check` found them, and groups started and stopped."""
    lost = [outcome for outcome in outcomes if outcome.status == replay.LOST]
    served = [outcome for outcome in outcomes if outcome.answers]
    ready = {outcome.worker: outcome.sent + outcome.latency for outcome in served if outcome.cold}
    waited = [outcome for outcome in served if not outcome.cold and outcome.sent < ready.get(outcome.worker, -math.inf)]
    known = {id(outcome) for outcome in waited}
    reasons = Counter(outcome.reason for outcome in lost) + Counter(fault for fault in faults if fault)
    return Report(
        requests=len(outcomes),
        destinations=len({outcome.ask.key for outcome in outcomes}),
        answered=len(outcomes) - len(lost),
        wrong=sum(bool(fault) for fault in faults),
        lost=len(lost),
        cold=Latency.of([outcome for outcome in served if outcome.cold]),
        waited=Latency.of(waited),
        warm=Latency.of([outcome for outcome in served if not outcome.cold and id(outcome) not in known]),
        groups_started=groups[0],
        groups_stopped=groups[1],
        reasons=reasons.most_common(5),
    )


def table(report: Report) -> Table:
    """Return the numbers as a table for a person."""
    shown = Table(box=box.SIMPLE_HEAD, show_header=False, title="Replay", title_justify="left")
    shown.add_column()
    shown.add_column(justify="right")
    shown.add_column()
    shown.add_row("requests", str(report.requests), f"to {report.destinations} destinations")
    shown.add_row("answered", str(report.answered), "each checked against the whole table")
    shown.add_row("wrong", str(report.wrong))
    shown.add_row("lost", str(report.lost))
    shown.add_row("cold starts", str(report.cold.count), _times(report.cold))
    shown.add_row("waited for one", str(report.waited.count), _times(report.waited))
    shown.add_row("warm", str(report.warm.count), _times(report.warm))
    shown.add_row("groups started", _number(report.groups_started))
    shown.add_row("groups stopped", _number(report.groups_stopped))
    for reason, count in report.reasons:
        shown.add_row("reason", str(count), reason)
    return shown


def _fault(outcome: replay.Outcome, expected: Expected) -> str:
    if outcome.status == replay.LOST:
        return ""
    if outcome.answer is None:
        return outcome.reason or f"answered {outcome.status}"
    if outcome.answer != expected(outcome.ask.key, outcome.ask.question):
        return f"{outcome.ask.question['question']}: not what the whole table says"
    return ""


def _rank(ordered: Sequence[float], share: float) -> float | None:
    """Return the nearest-rank percentile of ordered numbers."""
    return ordered[max(0, math.ceil(len(ordered) * share) - 1)] if ordered else None


def _times(latency: Latency) -> str:
    if latency.p50 is None or latency.p95 is None or latency.most is None:
        return ""
    parts = (("p50", latency.p50), ("p95", latency.p95), ("max", latency.most))
    return "  ".join(f"{name} {seconds * 1000:.0f} ms" for name, seconds in parts)


def _number(value: int | None) -> str:
    return "unknown" if value is None else str(value)
