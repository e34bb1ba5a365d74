"""The tables of docs/protocol.md say what the protocol package says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import steps
from osrdyne_protocol import events, expiry, headers, statuses, worker_environment
from osrdyne_protocol.broker.topology import topology
from osrdyne_protocol.names import PoolNames
from osrdyne_protocol.settings import PoolSettings

PAGE = Path(steps.ROOT, "docs/protocol.md").read_text()
NAMES = PoolNames("core")
OURS = topology(PoolSettings("core"))


def table(heading: str, title: str) -> list[list[str]]:
    """Rows of the table under a heading whose first column has this title; a bar within a cell is escaped."""
    section = re.split(r"^## ", PAGE.split(f"## {heading}\n")[1], flags=re.MULTILINE)[0]
    lines = section[section.index(f"| {title} |") :].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def code(cell: str) -> str:
    return cell.strip("`")


def test_statuses_and_their_meanings() -> None:
    assert {code(row[0]): row[1] for row in table("Reply", "status")} == dict(statuses.STATUSES)


def test_events_and_who_sends_them() -> None:
    shown = {code(row[0]): row[1] for row in table("Activity events", "event")}

    workers = {*events.ACTIVITY, events.STOPPING}
    theirs = dict.fromkeys(events.BY_A_PERSON, "operator")
    assert shown == dict.fromkeys(workers, "worker") | dict.fromkeys(events.LIFECYCLE, "daemon") | theirs


def test_the_stages_at_which_a_request_expires() -> None:
    assert {code(row[0]): row[1] for row in table("Reply", "stage")} == dict(expiry.STAGES)


def test_the_events_that_keep_a_key_alive() -> None:
    found = re.search(r"^Only (.*) keep a key alive\.$", PAGE, re.MULTILINE)

    assert found
    assert set(re.findall("`(.*?)`", found[1])) == events.ACTIVITY


def test_headers() -> None:
    brokers = {*headers.BROKER_ADDED, headers.CC, headers.BCC}
    ours = {value for name, value in vars(headers).items() if name.isupper() and isinstance(value, str)} - brokers

    assert {code(row[0]) for row in table("Headers", "header")} == ours


def test_the_workers_variables() -> None:
    ours = {value for name, value in vars(worker_environment).items() if name.startswith("WORKER_")}

    assert {code(row[0]) for row in table("Worker", "variable")} == ours


def test_the_names_of_the_broker_objects() -> None:
    shown = {code(row[0]) for row in table("Words and names", "name")}
    static = {one.name for one in OURS.exchanges} | {one.name for one in OURS.queues}

    reply = "reply-{user}-{32 hexadecimal digits}"
    assert shown == static | {NAMES.leader_queue, NAMES.poison_lock_queue, NAMES.request_queue("{key}"), reply}


@pytest.mark.parametrize("role", ["client", "worker", "daemon", "monitor", "operator"])
def test_the_permissions_of_a_role(role: str) -> None:
    row = next(row for row in table("Who may do what", "role") if row[0] == role)
    user = next(one for one in OURS.users if one.role == role)
    permission = next(one for one in OURS.permissions if one.user == user.name)

    assert [code(cell) for cell in row[1:]] == [
        ",".join(user.tags),
        permission.configure,
        permission.write,
        permission.read,
    ]
