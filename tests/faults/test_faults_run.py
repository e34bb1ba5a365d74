"""The runner itself, as `make faults` starts it, on real brokers."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from faults.plan import KINDS
from testbed.broker import SUITES

pytestmark = pytest.mark.full

ROOT = Path(__file__).parents[2]
LAST_LINE = re.compile(
    r"faults: injected=(?P<injected>\d+) requests=(?P<requests>\d+) answered=(?P<answered>\d+) "
    r"poisoned=(?P<poisoned>\d+) lost_by_broker=(?P<lost_by_broker>\d+) lost=(?P<lost>\d+) "
    r"duplicates=(?P<duplicates>\d+) redelivered=(?P<redelivered>\d+)"
)
#: Seconds of load and faults; each kind takes its turn also when they are over.
DURATION_SECONDS = 60


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "faults", *arguments]
    return subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL)


def counts(text: str) -> dict[str, int]:
    found = LAST_LINE.fullmatch(text.strip().splitlines()[-1])
    assert found, text
    return {name: int(number) for name, number in found.groupdict().items()}


def row(document: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [row for result in document for row in result["rows"] if row["kind"] == kind]


@pytest.mark.timeout(1800)
def test_no_confirmed_request_is_lost_whatever_happens_on_either_broker() -> None:
    done = run("--duration", str(DURATION_SECONDS), "--json")
    found = counts(done.stderr)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert {run["version"] for run in document} == set(SUITES)
    for kind in KINDS:
        assert all(count["injected"] for count in row(document, kind)), kind
        assert len(row(document, kind)) == len(SUITES), kind
    assert found["lost"] == 0
    assert found["injected"] >= len(KINDS) * len(SUITES)
    assert found["requests"] > 1000
    assert found["poisoned"] > 0
    assert found["requests"] == found["answered"] + found["poisoned"] + found["lost_by_broker"]
    # A worker that is killed between its reply and its acknowledgement makes one each time.
    assert found["duplicates"] >= len(SUITES)


def test_nothing_that_happens_to_events_has_a_request_delivered_again() -> None:
    kinds = ("events-stream-away", "events-permission-revoked", "activity-exchange-deleted")
    done = run("--duration", "12", "--only", ",".join(kinds), "--json")
    found = counts(done.stderr)
    assert done.returncode == 0, done.stderr
    for kind in kinds:
        assert [count["injected"] > 0 for count in row(json.loads(done.stdout), kind)] == [True] * len(SUITES), kind
    assert (found["lost"], found["redelivered"]) == (0, 0)


def test_a_request_that_is_stolen_is_counted_as_lost() -> None:
    version = max(SUITES)
    done = run("--duration", "8", "--only", "theft", "--broker", version)
    found = counts(done.stdout)
    assert done.returncode == 1, done.stderr
    assert found["lost"] == found["injected"] >= 1
    assert f"{version}: lost: " in done.stdout
    assert "for key dead" in done.stdout


def test_an_unknown_fault_is_a_mistake_of_the_command_line() -> None:
    done = run("--only", "earthquake")
    assert done.returncode == 2
    assert "earthquake" in done.stderr
