"""A recommendation as it is saved, on the page."""

from __future__ import annotations

import dataclasses
import json

import pytest

from osrdyne_pipeline.recommendation.outcome import (
    ClassAdvice,
    EvidenceTarget,
    PolicyResult,
    Ratio,
    Recommendation,
    RecommendationEvidence,
    Setting,
    TradeoffPoint,
)
from osrdyne_pipeline.report import advice, content
from osrdyne_pipeline.report.evidence import evidence
from osrdyne_pipeline.report.page import page
from tests.pipeline.report import samples

FOUND = RecommendationEvidence(
    since="2013-11-01",
    until="2013-12-26",
    train_weeks=4,
    weeks=8,
    folds=8,
    results=(
        PolicyResult("today", "fixed 10 + 10 min", 9000, 4321, 4000, 777.5, 0.8, 0.7, 105),
        PolicyResult("histogram", "hybrid histogram", 9000, 2500, 2400, 900.0, 0.5, 0.4, 105),
        PolicyResult("ours", "ours", 9000, 1234, 1200, 770.25, 0.3, 0.2, 105),
    ),
    cold=Ratio(0.285, 0.25, 0.32),
    rate=Ratio(0.4, 0.3, 0.5),
    hours=Ratio(0.99, 0.97, 1.01),
    targets=(EvidenceTarget("75th percentile relative to today's", 0.5, 0.375, True),),
)
FULL = Recommendation(
    pool="core",
    recommended=True,
    reasons=(),
    goal="cold",
    since="2013-01-01",
    until="2013-12-31",
    days=365,
    keys=105,
    requests=336_776,
    shortened=False,
    unbind_before=600.0,
    stop_before=600.0,
    unbind_delay=540.0,
    stop_delay=60.0,
    overrides=(Setting("LAX", 3000.0, 60.0, (), 900, 40, 4, 20.0, 30.0),),
    classes=(ClassAdvice("rare", 60, 3000, 1800.0, 2500, 2000, 300.0, 310.0),),
    fixed_curve=(TradeoffPoint(600.0, 5000.0, 700.0), TradeoffPoint(1200.0, 4321.0, 777.5)),
    our_curve=(TradeoffPoint(None, 3000.0, 500.0), TradeoffPoint(None, 1234.0, 770.25)),
    evidence=FOUND,
)


def shown(recommendation: Recommendation) -> content.ReportContent:
    """The full sample with this recommendation, as it comes back from its file."""
    document = json.loads(json.dumps(recommendation.to_json()))
    return dataclasses.replace(samples.full(), evidence=evidence(document), no_evidence="too little")


def test_a_recommendation_is_on_the_page_with_the_numbers_of_held_out_days() -> None:
    text = page(shown(FULL))

    for words in (
        "4,321",
        "1,234",
        "2,500",
        "2013-11-01",
        "-75.0 % to -68.0 %",
        "at most 80 % of the requests",
        "rare: 30 min",
        "20 min",
    ):
        assert words in text
    assert "−71 %" in text
    for goal in ("wanted", "Reached", "reached", "0.375"):
        assert goal not in text


def test_where_no_class_of_keys_does_better_with_a_delay_of_its_own_the_page_says_so() -> None:
    text = page(shown(dataclasses.replace(FULL, classes=())))

    assert "No class of keys does better with one delay of its own than with today's delays." in text


@pytest.mark.parametrize(("goal", "said"), [("cold", False), ("hours", True)])
def test_classes_that_have_fewer_hours_and_more_cold_starts_are_shown_with_the_goal(goal: str, said: bool) -> None:
    text = page(shown(dataclasses.replace(FULL, goal=goal)))

    assert ("The goal was fewer worker-hours" in text) == said
    assert ("Classes that do no better so are left out." in text) != said


@pytest.mark.parametrize(
    ("workers", "high", "room", "busy"),
    [
        (0.00088, 0.02, "room for 1 busy worker on", "with 3.2 s of work."),
        (1.2, 2.0, "room for 2 busy workers on", "with 1.2 h of work."),
        (11.6, 15.2, "room for 16 busy workers on", "with 12 workers busy at once."),
    ],
)
def test_capacity_is_shown_in_whole_workers_and_little_work_in_time(
    workers: float, high: float, room: str, busy: str
) -> None:
    hour = content.HourForecast("rare", 8, 3.0, 5.0, workers, high)
    found = dataclasses.replace(samples.full(), forecast=content.Forecast("2014-01-01", 30, [hour]))

    (step,) = [step for step in advice.next_steps(found) if step.what.startswith("Have room")]

    assert room in step.what
    assert step.why == f"The busiest hour is expected from 08:00 UTC, {busy}"


def test_what_the_held_out_days_do_not_support_is_shown_as_such() -> None:
    refused = dataclasses.replace(FULL, recommended=False, reasons=("that may be chance",), overrides=())

    found = shown(refused)

    assert "Keep today's delays" in [step.what for step in advice.next_steps(found)]
    text = page(found)
    assert "Nothing is recommended: that may be chance." in text
    assert "best found" in text
    assert "if applied" not in text


@pytest.mark.parametrize("recommended", [True, False])
def test_a_history_too_short_for_evidence_has_none(recommended: bool) -> None:
    short = dataclasses.replace(FULL, recommended=recommended, evidence=None)

    assert evidence(short.to_json()) is None
    assert "too little" in page(shown(short))


def test_every_reason_for_which_messages_were_put_aside_is_counted() -> None:
    (said,) = [step.why for step in advice.next_steps(samples.full()) if "sends what is not an event" in step.what]
    assert said == "15 messages were put aside: 12 unknown event, 3 truncated. They are in the table rejects."


@pytest.mark.parametrize(
    ("hours", "price", "says"),
    [
        (770.25, None, "That saves 7.25 h of workers."),
        (770.25, 0.5, "That saves 7.25 h of workers, 3.62 by the price of an hour."),
        (787.5, 2.0, "That takes 10 h of workers, 20.00 by the price of an hour."),
        (777.5, 2.0, "Worker time stays the same."),
    ],
)
def test_advice_on_delays_says_what_it_saves_in_hours_and_in_money(
    hours: float, price: float | None, says: str
) -> None:
    results = tuple(
        dataclasses.replace(result, worker_hours=hours) if result.name == "ours" else result for result in FOUND.results
    )
    found = shown(dataclasses.replace(FULL, evidence=dataclasses.replace(FOUND, results=results)))
    (step,) = [
        step for step in advice.next_steps(dataclasses.replace(found, price=price)) if step.what.startswith("Review")
    ]
    assert step.why.endswith(says)
