"""Which requests may wake a new key: the budget of each user, without a clock or a broker."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from osrdyne.intake import wake_rules
from osrdyne.intake.orphan_rules import Origin, origin
from osrdyne.intake.wake_rules import WakeBudget
from osrdyne_amqp import Properties
from osrdyne_pool.settings import PoolSettings
from osrdyne_protocol import statuses

ANY = PoolSettings("core")


def test_a_bucket_has_its_tokens_at_once_and_then_one_each_interval() -> None:
    budget = WakeBudget(burst=3, interval=2.0)

    assert [budget.take("u", 100.0) for _ in range(4)] == [0.0, 0.0, 0.0, 2.0]
    assert budget.take("u", 101.5) == 0.5
    assert budget.take("u", 102.0) == 0.0
    assert budget.take("u", 102.0) == 2.0
    assert [budget.take("u", 1000.0) for _ in range(4)] == [0.0, 0.0, 0.0, 2.0]


@given(st.floats(0.0, 1e8), st.floats(0.001, 1000.0))
def test_a_full_bucket_gives_its_last_token_whatever_the_clock_shows(now: float, interval: float) -> None:
    assert WakeBudget(burst=1, interval=interval).take("u", now) == 0.0


@given(st.lists(st.floats(0.0, 5.0), max_size=60), st.integers(1, 5), st.floats(0.01, 3.0))
def test_no_user_gets_more_than_its_bucket_and_what_has_flown_into_it(
    waits: list[float], burst: int, interval: float
) -> None:
    budget, now, taken = WakeBudget(burst=burst, interval=interval), 50.0, 0
    for wait in waits:
        now += wait
        left = budget.take("u", now)
        taken += left == 0.0
        assert 0.0 <= left <= interval * 1.001
        assert taken <= burst + (now - 50.0) / interval + 0.001


def test_one_users_bucket_is_not_anothers_and_what_has_no_user_shares_one() -> None:
    budget = WakeBudget(burst=1, interval=60.0)
    users = [origin(Properties(user_id=user), "core-daemon") for user in ("a", b"a", "b", None, "", b"\xff")]
    answers = [wake_rules.refusal("k", user, ANY, budget, now=0.0) for user in users]

    assert [answer is None for answer in answers] == [True, False, True, True, False, False]


def test_buckets_take_bounded_memory_and_users_beyond_share_one() -> None:
    budget = WakeBudget(burst=1, interval=1000.0)
    for number in range(wake_rules.MOST_USERS + 500):
        budget.take(f"user-{number}", 0.0)

    assert len(budget._full_at) <= wake_rules.MOST_USERS + 1
    assert budget.take("one more", 1.0) > 0
    # A full bucket is as good as none.
    assert budget.take("one more", 5000.0) == 0
    assert len(budget._full_at) == 1


def test_a_key_that_the_pool_leaves_out_spends_nothing_and_says_that_no_other_try_helps() -> None:
    budget = WakeBudget(burst=1, interval=60.0)
    pool = PoolSettings("core", keys=("LAX",))

    refused = wake_rules.refusal("SFO", Origin("u"), pool, budget, now=0.0)

    assert refused is not None
    assert (refused.refused, refused.status, refused.retry_after_ms) == ("keys", statuses.REJECTED, None)
    assert wake_rules.refusal("LAX", Origin("u"), pool, budget, now=0.0) is None


def test_a_refusal_for_the_budget_says_when_to_try_again_and_is_right() -> None:
    budget = WakeBudget(burst=1, interval=0.25)
    wake_rules.refusal("a", Origin("u"), ANY, budget, now=7.0)

    refused = wake_rules.refusal("b", Origin("u"), ANY, budget, now=7.125)

    assert refused is not None
    assert (refused.status, refused.retry_after_ms) == (statuses.THROTTLED, 125)
    assert wake_rules.refusal("b", Origin("u"), ANY, budget, now=7.125 + 0.125) is None
