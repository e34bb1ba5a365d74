"""What a worker makes of requests that it held too long, and of those that come back uncounted."""

from __future__ import annotations

import asyncio
import itertools
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from osrdyne_amqp.errors import ChannelClosed, PreconditionFailed
from osrdyne_calls.handling import Outcome, Request
from osrdyne_calls.runners import Done, Withdraw
from osrdyne_worker import consumer_timeout
from osrdyne_worker.consumer_timeout import hang_was_not_counted
from osrdyne_worker.in_flight import InFlight
from osrdyne_worker.session import Delivery
from testbed.waiting import until


@pytest.mark.parametrize(
    ("handed_out", "counted", "owed"),
    [
        (None, None, False),
        (None, 3, False),  # RabbitMQ 4.0 counts all and reports no deliveries
        (1, None, False),  # a worker that stops gives back what it has not begun
        (2, None, True),
        (2, 1, False),
        (3, 1, False),
        (4, 1, True),
        (3, 3, False),
        ("7", None, False),
        (True, None, False),
    ],
)
def test_each_hand_out_that_was_not_counted_is_made_up_for_but_for_one(
    handed_out: object, counted: object, owed: bool
) -> None:
    values = {"x-acquired-count": handed_out, "x-delivery-count": counted}
    assert hang_was_not_counted({name: value for name, value in values.items() if value is not None}) is owed


@pytest.mark.parametrize("page", ["reference/protocol-workers.md", "howto/worker.md"])
def test_the_pages_have_the_rule_of_the_code(page: str) -> None:
    text = " ".join((Path(__file__).parents[3] / "docs" / page).read_text(encoding="utf-8").split())
    rule = re.compile(
        r"When `x-acquired-count > (\d+) \* x-delivery-count \+ (\d+)`, "
        "the library rejects the request without calling the handler"
    )
    [(factor, more)] = rule.findall(text)
    for handed_out, counted in itertools.product(range(12), range(6)):
        given = {"x-acquired-count": handed_out, "x-delivery-count": counted}
        assert hang_was_not_counted(given) is (handed_out > int(factor) * counted + int(more)), given


def test_a_request_that_always_hangs_is_run_once_more_than_one_that_always_crashes() -> None:
    # Given a broker that counts a reject and not a timeout, as RabbitMQ 4.3 does, and a limit of 3
    handed_out, counted, runs = 0, 0, 0
    while counted <= 3:
        if handed_out and hang_was_not_counted({"x-acquired-count": handed_out, "x-delivery-count": counted}):
            counted += 1
        else:
            runs += 1
        handed_out += 1
    assert runs == 5


def test_a_worker_that_knows_the_timeout_gives_up_a_little_before() -> None:
    assert consumer_timeout.patience(2000) == pytest.approx(1.8)
    assert consumer_timeout.patience(1_800_000) == 1795.0
    assert consumer_timeout.patience(None) is None


def work(session: object, started: float, *, done: bool = False) -> InFlight:
    request = Request("42", b"", {}, None, False, None)
    message: Any = None
    held: Any = session
    one = InFlight(request, Delivery(held, message), started, started, started)
    one.outcome = Outcome("ok") if done else None
    return one


def test_the_oldest_that_still_runs_was_held_too_long_and_what_is_about_as_old() -> None:
    session: Any = object()
    works = [
        work(session, 10.0),
        work(session, 1.0),
        work(session, 0.0),
        work(object(), 0.0),
        work(session, 0.0, done=True),
    ]
    assert consumer_timeout.held_too_long(works, session, 20.0) == [works[2], works[1]]
    assert consumer_timeout.held_too_long([], session, 20.0) == []


async def test_what_is_given_up_is_so_before_the_end_of_any_handler_is_waited_for() -> None:
    # Given handlers of which one takes its time to end, while another one finishes by itself
    session: Any = object()
    works = [work(session, 0.0), work(session, 0.0)]
    asked: list[list[bool]] = []

    class EndingRunner:
        def start(self, request: Request, done: Done) -> Withdraw:
            raise AssertionError("nothing is started here")

        def close(self) -> None:
            raise AssertionError("nothing is closed here")

        async def end(self, request: Request) -> bool:
            asked.append([work.given_up for work in works])
            await asyncio.sleep(0)
            return request is works[0].request

    assert await consumer_timeout.end(works, EndingRunner()) == [works[1]]
    assert asked == [[True, True]] * 2


def test_a_process_that_ends_at_once_leaves_no_child_of_its_executor_behind() -> None:
    script = """
import concurrent.futures, multiprocessing, time
from osrdyne_runtime import program
pool = concurrent.futures.ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork"))
pool.submit(time.sleep, 1000)
print(*(child.pid for child in multiprocessing.active_children()))
program.end_at_once(70)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 70, done.stderr
    (child,) = done.stdout.split()

    def has_ended() -> bool:
        try:
            # The process that adopted it may not have collected it yet: it has no command line then.
            return not Path(f"/proc/{child}/cmdline").read_bytes()
        except OSError:
            return True

    until(has_ended)


def test_only_the_brokers_own_words_are_a_timeout() -> None:
    said = "PRECONDITION_FAILED - delivery acknowledgement on channel 1 timed out. Timeout value used: 2000 ms (406)"
    assert consumer_timeout.is_timeout(PreconditionFailed(said, code=406))
    assert not consumer_timeout.is_timeout(
        PreconditionFailed("PRECONDITION_FAILED - unknown delivery tag 7 (406)", code=406)
    )
    assert not consumer_timeout.is_timeout(ChannelClosed(said))
