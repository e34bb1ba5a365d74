"""The example pool on a real broker: all of its destinations cold at once, and the demo as users run it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from examples.airports import cache
from testbed.foreign_client import ForeignClient
from testbed.pool import DaemonProcess, Pool
from tests.broker.conftest import ROOT

WORKER = [sys.executable, str(ROOT / "examples/airports/worker.py")]
QUESTION = {"question": "delays"}


@pytest.mark.full
@pytest.mark.xdist_group("crowd")
def test_all_105_destinations_asked_at_once_give_the_answers_of_the_whole_table(
    make_pool: Callable[..., Pool],
    make_daemon: Callable[..., DaemonProcess],
    make_client: Callable[[Pool], ForeignClient],
) -> None:
    from examples.airports.whole_table import WholeTable  # pandas: half a second for each process that collects tests

    pool = make_pool(name="airports")
    make_daemon(pool, worker=WORKER)
    table = WholeTable(Path(cache.source()))
    client = make_client(pool)
    body = json.dumps(QUESTION).encode()
    ids = {destination: client.send(destination, body) for destination in table.destinations}
    assert len(ids) == 105
    for destination, answer in zip(ids, client.wait(*ids.values(), timeout=180), strict=True):
        found = json.loads(answer.body)
        del found["served_by"]
        assert (answer.status, found) == ("ok", table.answer(destination, QUESTION))


@pytest.mark.xdist_group("demo")
def test_the_demo_ends_with_every_request_answered_and_right_and_shows_cold_starts(
    make_pool: Callable[..., Pool], make_daemon: Callable[..., DaemonProcess], tmp_path: Path
) -> None:
    pool = make_pool(name="airports", unbind_delay=2.0, stop_delay=1.0)
    make_daemon(pool, worker=WORKER)
    demo = demo_of(pool, tmp_path, "--hours", "5-7")
    assert demo.returncode == 0, demo.stdout + demo.stderr
    last = demo.stdout.splitlines()[-1]
    numbers = re.fullmatch(r"demo: requests=(\d+) answered=(\d+) wrong=0 lost=0", last)
    assert numbers is not None, last
    assert numbers[1] == numbers[2]
    assert int(numbers[1]) > 50
    assert "cold starts" in demo.stdout


@pytest.mark.full
def test_the_demo_fails_when_no_worker_answers(
    make_pool: Callable[..., Pool], make_daemon: Callable[..., DaemonProcess], tmp_path: Path
) -> None:
    pool = make_pool(name="airports")
    make_daemon(pool, worker=["/does/not/exist"])
    demo = demo_of(pool, tmp_path, "--hours", "5-6", "--timeout", "3")
    assert demo.returncode != 0
    # Then no request has an answer that is right: `expired`, where the daemon was in time, or none at all
    assert " wrong=0 lost=0" not in demo.stdout


def demo_of(pool: Pool, directory: Path, *options: str) -> subprocess.CompletedProcess[str]:
    addresses = []
    for option, user in (("--broker", pool.users.client), ("--events", pool.users.monitor)):
        file = directory / f"{user}.uri"
        file.touch(mode=0o600)
        file.write_text(pool.uri(user))
        addresses += [option, str(file)]
    return subprocess.run(
        [sys.executable, "-m", "examples.airports.demo", *addresses, *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
