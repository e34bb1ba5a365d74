"""The account of requests, without a broker: what counts as answered, as lost, and as whose outage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from faults.journal import Journal, Journals
from faults.ledger import STEADY, Fate, Ledger, Row, Window


def step(at: float, what: str, request: str = "r", **more: Any) -> dict[str, Any]:
    return {"at": at, "step": what, "request": request, "client": "c", **more}


def sent(at: float, request: str = "r", *, confirmed: bool = True) -> list[dict[str, Any]]:
    steps = [step(at, "sent", request, key="k", replies=True)]
    return [*steps, step(at + 0.1, "confirmed", request)] if confirmed else steps


def ledger(*steps: dict[str, Any]) -> Ledger:
    result = Ledger()
    result.take(steps)
    return result


def rows(account: Ledger, *windows: Window, ended: float = 100.0) -> dict[str, Row]:
    return {row.kind: row for row in account.rows(windows, began=0.0, ended=ended, lifetime=1.0)}


def test_a_confirmed_request_of_which_nothing_is_found_is_lost() -> None:
    account = ledger(*sent(1.0))
    assert [request.name for request in account.lost] == ["r"]
    assert rows(account)[STEADY].lost == 1


def test_a_request_that_was_never_confirmed_cannot_be_lost() -> None:
    account = ledger(*sent(1.0, confirmed=False))
    assert account.lost == []
    assert rows(account)[STEADY].requests == 0


@pytest.mark.parametrize(
    ("find", "fate"),
    [(Ledger.poison, Fate.POISONED), (Ledger.queue, Fate.QUEUED), (lambda a, r: a.reply(r, "ok"), Fate.ANSWERED)],
)
def test_a_request_that_is_found_somewhere_is_not_lost(find: Any, fate: Fate) -> None:
    account = ledger(*sent(1.0))
    find(account, "r")
    assert account.requests["r"].fate is fate
    assert account.lost == []


def test_an_answer_counts_before_a_copy_in_the_poison_inventory() -> None:
    account = ledger(*sent(1.0), step(2.0, "answered", "", correlation_id="r", status="delivery_limit"))
    account.poison("r")
    assert rows(account)[STEADY].answered == 1
    assert rows(account)[STEADY].poisoned == 0


def test_a_reply_to_a_correlation_id_of_the_library_is_found_by_its_request() -> None:
    account = ledger(*sent(1.0), step(1.1, "named", "r", correlation_id="id-7"))
    account.reply("id-7", "ok")
    assert account.statuses == {"ok": 1}


def test_every_reply_after_the_first_is_a_duplicate_of_the_latest_fault_before_it() -> None:
    account = ledger(*sent(1.0))
    for at in (1.5, 2.0, 11.0, 20.0, None):
        account.reply("r", "ok", at)
    found = rows(account, Window("cut", 10.0, 12.0))
    assert (found["cut"].duplicates, found[STEADY].duplicates) == (2, 2)


def test_a_redelivery_is_that_of_the_latest_fault_before_it() -> None:
    account = ledger(*sent(1.0))
    account.redelivered = [2.0, 11.0, 20.0]
    found = rows(account, Window("cut", 10.0, 12.0))
    assert (found["cut"].redelivered, found[STEADY].redelivered) == (2, 1)


@pytest.mark.parametrize(("moment", "kind"), [(9.5, "cut"), (8.5, STEADY), (11.0, "cut"), (12.5, STEADY)])
def test_a_request_belongs_to_the_first_fault_that_it_may_have_met_within_its_time_to_live(
    moment: float, kind: str
) -> None:
    assert rows(ledger(*sent(moment)), Window("cut", 10.0, 12.0))[kind].lost == 1


def test_a_request_that_was_answered_before_a_fault_does_not_count_for_it() -> None:
    account = ledger(*sent(9.5))
    account.reply("r", "ok", 9.9)
    assert rows(account, Window("cut", 10.0, 12.0))[STEADY].answered == 1


def test_a_time_without_answers_counts_for_the_fault_that_lasted_for_most_of_it() -> None:
    answers = [step(at, "answered", "", correlation_id=None, status="ok") for at in (9.9, 14.0)]
    found = rows(ledger(*answers), Window("cut", 5.0, 10.0), Window("kill", 10.0, 14.1), ended=15.0)
    assert found["kill"].outage == pytest.approx(4.1)


def test_a_time_without_answers_before_any_fault_counts_for_none() -> None:
    answers = [step(at, "answered", "", correlation_id=None, status="ok") for at in (1.0, 9.0, 29.0, 30.0)]
    found = rows(ledger(*answers), Window("cut", 10.0, 12.0), ended=31.0)
    assert found["cut"].outage == pytest.approx(20.0)
    assert found[STEADY].outage == pytest.approx(8.0)


def test_rows_sum_up_to_all_confirmed_requests() -> None:
    account = ledger(*(event for number in range(20) for event in sent(float(number), f"r{number}")))
    found = rows(account, Window("cut", 3.0, 5.0), Window("kill", 7.0, 9.0), Window("cut", 12.0, 12.5))
    assert sum(row.requests for row in found.values()) == 20
    assert found["cut"].injected == 2


def test_a_client_still_waits_for_what_is_neither_answered_nor_refused() -> None:
    account = ledger(*sent(1.0, "open"), *sent(1.0, "done"), *sent(1.0, "no", confirmed=False))
    account.take([step(2.0, "refused", "no", why="returned")])
    account.reply("done", "ok")
    assert [request.name for request in account.waiting(["c"])] == ["open"]
    assert account.waiting(["another"]) == []


def test_a_client_log_is_read_up_to_its_last_whole_line_and_later_from_there(tmp_path: Path) -> None:
    journals = Journals(tmp_path)
    journal = Journal(tmp_path / "one.journal")
    journal.sent("r", "k", replies=True)
    with (tmp_path / "one.journal").open("a") as file:
        file.write('{"at": 1, "step": "conf')
    assert [step["step"] for step in journals.news()] == ["sent"]
    with (tmp_path / "one.journal").open("a") as file:
        file.write('irmed", "request": "r"}\n')
    news = journals.news()
    assert [(step["step"], step["client"]) for step in news] == [("confirmed", "one")]
    assert journals.news() == []


def test_only_requests_in_a_queue_that_the_broker_lost_are_counted_separately() -> None:
    account = ledger(*sent(1.0, "long before"), *sent(5.0, "in it"), *sent(9.5, "after"), *sent(5.0, "found"))
    account.reply("found", "ok")
    account.lose_queue("another", since=4.0, until=9.0)
    assert len(account.lost) == 3
    account.lose_queue("k", since=4.0, until=9.0)
    assert [request.name for request in account.lost] == ["long before", "after"]
    found = rows(account)[STEADY]
    assert (found.answered, found.lost_by_broker, found.lost) == (1, 1, 2)


def test_a_key_has_answered_when_a_request_that_was_sent_since_has_an_ok() -> None:
    account = ledger(*sent(1.0, "before"), *sent(3.0, "failed"))
    account.reply("before", "ok")
    account.reply("failed", "unroutable")
    assert account.keys_answered_since(2.0) == set()
    account.reply("failed", "ok")
    assert account.keys_answered_since(2.0) == {"k"}


def test_how_late_answers_are_is_of_the_keys_and_the_time_that_are_asked_for() -> None:
    account = Ledger()
    for number in range(200):
        at = number / 10
        late = 5.0 if number in (3, 50, 51) else 0.5
        account.take(
            [*sent(at, f"r{number}"), step(at + late, "answered", "", correlation_id=f"r{number}", status="ok")]
        )

    # One of a hundred may be later.
    assert account.late(["k"], [(0.0, 4.95)]) == pytest.approx(5.0)
    assert account.late(["k"], [(0.0, 0.25), (5.15, 19.0)]) == pytest.approx(0.5)
    with pytest.raises(ValueError, match="no request of other was answered"):
        account.late(["other"], [(0.0, 20.0)])
