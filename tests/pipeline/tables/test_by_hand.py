"""Small histories of which every figure is computed by hand: one key a story, all in one pool."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from tests.pipeline.tables.histories import DAY, HOUR, MONDAY, Pool, Tables, made_of, the_day

LAST = 3 * DAY


def cold(pool: Pool) -> None:
    """A cold call that took all there is to take, then a warm one, then an idle group is stopped."""
    tell = pool.key("cold")
    tell("orphan-seen", 0, "a")
    tell("queue-ready", 40)
    tell("forwarded", 50, "a")
    tell("group-started", 60)
    tell("started", 1_060, worker_id="w1")
    tell("request-received", 1_100, "a", worker_id="w1")
    tell("finished", 1_400, "a", worker_id="w1", outcome="ok", duration_ms=290)
    tell("request-received", 10_000, "b", worker_id="w1")
    tell("finished", 10_200, "b", worker_id="w1", outcome="error", duration_ms=190)
    tell("unbound", 70_000)
    tell("group-stopped", 80_060, outcome="idle")
    tell("queue-deleted", 81_000)


def quick(pool: Pool) -> None:
    """A key whose group still runs: the daemon records `forwarded` when the worker has answered already."""
    tell = pool.key("quick")
    tell("request-received", 0, "warm", worker_id="w1")
    tell("finished", 5, "warm", worker_id="w1", outcome="ok")
    tell("orphan-seen", 1_000, "a")
    tell("request-received", 1_010, "a", worker_id="w1")
    tell("finished", 1_012, "a", worker_id="w1", outcome="ok")
    tell("forwarded", 1_015, "a")


def again(pool: Pool) -> None:
    """One id three times: answered, sent again and dead-lettered, replayed from the poison inventory and answered."""
    tell = pool.key("again")
    tell("request-received", 0, "a", worker_id="w1")
    tell("finished", 100, "a", worker_id="w1", outcome="ok")
    tell("orphan-seen", 1_000, "a")
    tell("dead-lettered", 61_000, "a", outcome="expired")
    tell("replayed", 3 * HOUR, "a", outcome="expired", worker_id="a person")
    tell("request-received", 3 * HOUR + 5, "a", worker_id="w2")
    tell("finished", 3 * HOUR + 25, "a", worker_id="w2", outcome="ok")


def crashing(pool: Pool) -> None:
    """Two workers crash on a request; it dies, and a third worker starts after it."""
    tell = pool.key("crashing-42")
    tell("orphan-seen", 0, "req-1")
    tell("forwarded", 10, "req-1")
    tell("group-started", 20)
    tell("started", 500, worker_id="w1")
    tell("request-received", 520, "req-1", worker_id="w1")
    tell("group-started", 1_600)
    tell("started", 2_000, worker_id="w2")
    tell("request-received", 2_020, "req-1", worker_id="w2")
    tell("dead-lettered", 2_100, "req-1", outcome="delivery_limit")
    tell("group-started", 4_000)
    tell("started", 4_400, worker_id="w3")
    tell("group-stopped", 64_000, outcome="idle")


def given_back(pool: Pool) -> None:
    """A worker gives a request back twice, and the broker gives up."""
    tell = pool.key("given back")
    for at in (0, 100):
        tell("request-received", at, "a", worker_id="w1")
        tell("finished", at + 50, "a", worker_id="w1", outcome="requeued")
    tell("dead-lettered", 151, "a", outcome="delivery_limit")


def hanging(pool: Pool) -> None:
    """A worker takes a request and is heard of no more, until the daemon finds its group stuck."""
    tell = pool.key("hanging-7")
    tell("group-started", 0)
    tell("request-received", 1_000, "req-9", worker_id="w1")
    tell("group-stopped", HOUR, outcome="stuck: requests are ready, and none was taken for 1860 s")
    tell("group-started", HOUR + 2_000)
    tell("started", HOUR + 2_500, worker_id="w2")
    tell("dead-lettered", HOUR + 3_000, "req-9", outcome="delivery_limit")


def side_by_side(pool: Pool) -> None:
    """Three runs that overlap, in a life across midnight, which the last of them does, too; it is never stopped."""
    tell = pool.key("side by side")
    tell("group-started", DAY - 10_000)
    tell("started", DAY - 9_000, worker_id="w1")
    tell("started", DAY - 8_990, worker_id="w2")
    for request_id, begin, end in (
        ("a", -9_000, -6_000),
        ("b", -8_000, -7_000),
        ("c", -7_000, -5_000),
        ("d", -100, 300),
    ):
        tell("request-received", DAY + begin, request_id, worker_id="w1")
        tell("finished", DAY + end, request_id, worker_id="w1", outcome="ok")


def lossy(pool: Pool) -> None:
    """Requests of which events were lost, and requests without an id."""
    tell = pool.key("lossy")
    tell("orphan-seen", 0, "only seen")
    tell("forwarded", 5_000, "no orphan seen")
    tell("request-received", 5_100, "no orphan seen", worker_id="w1")
    tell("finished", 5_200, "no orphan seen", worker_id="w1", outcome="ok")
    tell("finished", 6_000, "only finished", worker_id="w1", outcome="ok")
    tell("request-received", 7_000, "never finished", worker_id="w1")
    tell("request-received", 7_000 + 2 * DAY, "never finished", worker_id="w2")
    tell("finished", 7_100 + 2 * DAY, "never finished", worker_id="w2", outcome="ok")
    tell("request-received", 8_000, None, worker_id="w1")
    tell("request-received", 8_000, "", worker_id="w1")
    tell("finished", 8_100, None, worker_id="w1", outcome="ok")


STORIES = (cold, quick, again, crashing, given_back, hanging, side_by_side, lossy)


@pytest.fixture(scope="module")
def tables(spark: SparkSession) -> Tables:
    pool = Pool()
    for story in STORIES:
        story(pool)
    pool.key("the end")("alive", LAST)
    return made_of(spark, pool.history)


def _parts(row: dict[str, object]) -> tuple[object, ...]:
    return tuple(row[part] for part in ("orphan_ms", "start_ms", "queue_ms", "run_ms", "total_ms"))


def test_a_cold_request_is_taken_apart_into_what_it_waited_for_and_its_run(tables: Tables) -> None:
    row = tables.one("requests", key="cold", request_id="a")
    assert _parts(row) == (50, 1_010, 40, 300, 1_400)
    assert (row["cold"], row["seen_ms"], row["received_ms"]) == (True, MONDAY, MONDAY + 1_100)
    assert (row["outcome"], row["ended_by"], row["worker_id"], row["deliveries"]) == ("ok", "finished", "w1", 1)


def test_a_warm_request_has_a_run_and_no_waits(tables: Tables) -> None:
    row = tables.one("requests", key="cold", request_id="b")
    assert (row["cold"], *_parts(row)) == (False, 0, 0, 0, 200, 200)


def test_a_forward_that_is_recorded_after_the_answer_is_not_a_second_request(tables: Tables) -> None:
    row = tables.one("requests", key="quick", request_id="a")
    assert (row["number"], row["cold"], *_parts(row)) == (1, True, 10, 0, 0, 2, 12)


def test_an_id_that_comes_again_after_an_end_is_another_request(tables: Tables) -> None:
    rows = sorted(tables.of("requests", key="again"), key=lambda row: row["number"])
    assert [(row["number"], row["cold"], row["outcome"], row["ended_by"], row["total_ms"]) for row in rows] == [
        (1, False, "ok", "finished", 100),
        (2, True, "expired", "dead-lettered", 60_000),
        (3, False, "ok", "finished", 20),
    ]
    assert _parts(rows[1]) == (60_000, 0, 0, 0, 60_000)


def test_what_a_crash_cost_is_in_the_queue_and_the_last_attempt_is_the_run(tables: Tables) -> None:
    row = tables.one("requests", key="crashing-42")
    assert _parts(row) == (10, 490, 1_520, 80, 2_100)
    assert (row["deliveries"], row["returns"], row["received_ms"], row["worker_id"]) == (2, 0, MONDAY + 520, "w2")


def test_requests_of_which_events_were_lost_say_what_is_known(tables: Tables) -> None:
    seen = tables.one("requests", key="lossy", request_id="only seen")
    assert (seen["cold"], seen["done_ms"], seen["total_ms"], seen["outcome"]) == (True, None, None, None)
    assert _parts(tables.one("requests", key="lossy", request_id="no orphan seen")) == (0, 100, 0, 100, 200)
    assert _parts(tables.one("requests", key="lossy", request_id="only finished")) == (0, 0, 0, 0, 0)


def test_an_id_that_comes_again_after_a_day_is_another_request_though_its_end_was_lost(tables: Tables) -> None:
    first, second = tables.of("requests", key="lossy", request_id="never finished")
    assert {first["number"], second["number"]} == {1, 2}
    assert sorted([first["total_ms"] or 0, second["total_ms"] or 0]) == [0, 100]


def test_a_request_without_an_id_counts_once_a_hand_out(tables: Tables) -> None:
    rows = [row for row in tables.of("requests", key="lossy") if row["request_id"].startswith("~")]
    assert [(row["deliveries"], row["done_ms"], row["cold"]) for row in rows] == [(1, None, False)] * 2


def test_a_life_goes_from_its_start_to_its_stop(tables: Tables) -> None:
    life = tables.one("lives", key="cold")
    begin = MONDAY
    assert (life["started_ms"], life["ready_ms"], life["unbound_ms"], life["stopped_ms"]) == (
        begin + 60,
        begin + 1_060,
        begin + 70_000,
        begin + 80_060,
    )
    assert (life["busy_ms"], life["requests"], life["workers"]) == (500, 2, 1)


def test_a_life_that_crashed_ends_when_the_next_one_starts(tables: Tables) -> None:
    lives = sorted(tables.of("lives", key="crashing-42"), key=lambda life: life["started_ms"])
    assert [(life["started_ms"] - MONDAY, life["stopped_ms"] - MONDAY, life["busy_ms"]) for life in lives] == [
        (20, 1_600, 0),
        (1_600, 4_000, 80),
        (4_000, 64_000, 0),
    ]


def test_a_group_that_ran_before_the_history_begins_with_its_first_warm_request(tables: Tables) -> None:
    life = tables.one("lives", key="quick")
    assert (life["started_ms"], life["stopped_ms"], life["busy_ms"], life["requests"]) == (MONDAY, None, 7, 2)


def test_runs_at_the_same_time_are_busy_once_and_midnight_parts_a_life(tables: Tables) -> None:
    life = tables.one("lives", key="side by side")
    assert (life["stopped_ms"], life["busy_ms"], life["requests"], life["workers"]) == (None, 4_400, 4, 2)
    assert life["days"] == [(the_day(0), 10_000, 4_100), (the_day(1), DAY, 300), (the_day(2), DAY, 0)]


def test_demand_counts_by_the_hour_in_which_a_request_was_first_seen(tables: Tables) -> None:
    rows = sorted(tables.of("demand", key="again"), key=lambda row: row["hour_ms"])
    assert [(row["hour_ms"] - MONDAY, row["requests"], row["cold"], row["run_ms"]) for row in rows] == [
        (0, 2, 1, 100),
        (3 * HOUR, 1, 0, 20),
    ]


def test_a_cold_start_costs_the_wait_until_a_worker_took_the_request(tables: Tables) -> None:
    row = tables.one("cold_starts", key="cold")
    assert (row["requests"], row["cold"], row["starts"], row["waited_ms"], row["worst_ms"]) == (2, 1, 1, 1_100, 1_100)
    expired = tables.one("cold_starts", key="again")
    assert (expired["requests"], expired["cold"], expired["waited_ms"], expired["p95_ms"]) == (3, 1, 60_000, 60_000)


def test_a_cold_request_that_still_waits_adds_no_wait(tables: Tables) -> None:
    row = tables.one("cold_starts", key="lossy", day=the_day(0))
    assert (row["cold"], row["waited_ms"], row["worst_ms"]) == (2, 100, 100)


def test_latency_sums_the_parts_cold_and_warm_apart(tables: Tables) -> None:
    row = tables.one("latency", key="again", cold=False)
    assert (row["requests"], row["run_ms"], row["total_ms"]) == (2, 120, 120)
    assert (row["p50_ms"], row["p95_ms"], row["p99_ms"]) == (20, 100, 100)


def test_worker_hours_count_a_life_on_each_of_its_days(tables: Tables) -> None:
    rows = sorted(tables.of("worker_hours", key="side by side"), key=lambda row: row["day"])
    assert [(row["day"], row["up_ms"], row["busy_ms"], row["idle_ms"]) for row in rows] == [
        (the_day(0), 10_000, 4_100, 5_900),
        (the_day(1), DAY, 300, DAY - 300),
        (the_day(2), DAY, 0, DAY),
    ]


def test_failures_are_grouped_by_reason_worker_exit_and_shape(tables: Tables) -> None:
    found = {(row["reason"], row["worker_exit"], row["shape"]) for row in tables.of("failures")}
    assert found == {
        ("error", "answered", "cold / b / short key"),
        ("expired", "none", "again / a / short key"),
        ("delivery_limit", "crashed", "crashing-N / req-N / short key"),
        ("delivery_limit", "hung", "hanging-N / req-N / short key"),
        ("delivery_limit", "gave back", "given back / a / short key"),
    }


def test_a_cause_names_its_first_example(tables: Tables) -> None:
    row = tables.one("failures", worker_exit="crashed")
    assert (row["requests"], row["keys"], row["first_ms"], row["last_ms"]) == (1, 1, MONDAY + 2_100, MONDAY + 2_100)
    assert (row["example_key"], row["example_request_id"]) == ("crashing-42", "req-1")
