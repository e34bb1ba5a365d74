"""The tables of the pages about the wire protocol say what the protocol package says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import steps
from osrdyne.commands.poison import entry
from osrdyne.failures import dead_letter_rules
from osrdyne.intake import orphan_rules
from osrdyne.state.delivery_history import PastDelivery
from osrdyne_amqp import Message, Properties
from osrdyne_pool.settings import PoolSettings
from osrdyne_pool.topology import topology
from osrdyne_protocol import events, expiry, headers, statuses, worker_environment
from osrdyne_protocol.names import PoolNames

PAGES = ("protocol", "protocol-workers", "headers", "permissions")
#: A heading between two of them ends the last section of the first.
PAGE = "\n## ".join(Path(steps.ROOT, f"docs/reference/{name}.md").read_text() for name in PAGES)
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
    both = {events.INTERRUPTED: "worker, daemon"}
    assert shown == dict.fromkeys(workers, "worker") | dict.fromkeys(events.LIFECYCLE, "daemon") | theirs | both


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


#: Now, in milliseconds since the epoch, and values that a header must have to count.
NOW = 1_700_000_000_000
VALUES: dict[str, object] = {headers.X_DEADLINE: NOW + 1000, headers.X_HOPS: 1, headers.X_FIRST_SEEN: NOW - 1000}


def request(**properties: Any) -> Message:
    return Message(b"", NAMES.request_exchange, "LAX", Properties(**properties), delivery_tag=1, redelivered=False)


def published_again(given: dict[str, object]) -> list[Properties | None]:
    """What becomes of a request with these headers, in the order of the columns; None where it is refused."""
    message = request(headers=dict(given))
    decision = orphan_rules.decide(message, orphan_ttl_ms=60_000, now_ms=NOW, own_user="core-daemon")
    return [
        decision.properties if isinstance(decision, orphan_rules.Forward) else None,
        orphan_rules.stamped(message.properties, NOW, own_user="core-daemon"),
        dead_letter_rules.put_back(message, answered=True),
        dead_letter_rules.kept(
            message,
            poison_id="1",
            reason="expired",
            detail="",
            key="LAX",
            queue="core-req-LAX",
            attempts=[PastDelivery("w", NOW)],
            now_ms=NOW,
        ),
        entry.replayed(message, keep_deadline=False),
    ]


def fate(name: str, with_it: Properties | None, without: Properties | None) -> str:
    if with_it is None:
        return "refused"
    if without is not None and name in (without.headers or {}):
        return "set"
    return "kept" if name in (with_it.headers or {}) else "dropped"


def shown_fates(name: str) -> list[str]:
    """The row of the page for a header: its own, that of names which begin so, or that of any other."""
    rows = table("Headers", "header of a request")
    for cells in rows[1:-1]:
        for shown in re.findall("`(.*?)`", cells[0]):
            if name == shown or (shown.endswith("...") and name.startswith(shown.removesuffix("..."))):
                return cells[1:]
    return rows[0][1:]


@pytest.mark.parametrize(
    "name", [*sorted(value for key, value in vars(headers).items() if key.isupper() and isinstance(value, str)), "mine"]
)
def test_which_headers_travel_on(name: str) -> None:
    before, after = published_again({}), published_again({name: VALUES.get(name, "x")})

    assert [fate(name, *queue) for queue in zip(after, before, strict=True)] == shown_fates(name)


def test_what_the_page_says_under_the_table_of_headers_that_travel_on() -> None:
    mine = request(headers={headers.X_DEADLINE: NOW, headers.X_ANSWERED: True})
    limited = request(expiration="1000")

    assert headers.X_DEADLINE in (entry.replayed(mine, keep_deadline=True).headers or {})
    assert headers.X_ANSWERED not in (dead_letter_rules.put_back(mine, answered=False).headers or {})
    assert (orphan_rules.stamped(limited.properties, NOW).headers or {})[headers.X_DEADLINE] == NOW + 1000


def test_the_workers_variables() -> None:
    ours = {value for name, value in vars(worker_environment).items() if name.startswith("WORKER_")}

    assert {code(row[0]) for row in table("Worker", "variable")} == ours


def test_the_names_of_the_broker_objects() -> None:
    shown = {code(row[0]) for row in table("Words and names", "name")}
    static = {exchange.name for exchange in OURS.exchanges} | {queue.name for queue in OURS.queues}

    reply = "reply-{user}-{32 hexadecimal digits}"
    assert shown == static | {NAMES.leader_queue, NAMES.poison_lock_queue, NAMES.request_queue("{key}"), reply}


@pytest.mark.parametrize("role", ["client", "worker", "daemon", "monitor", "operator", "pipeline"])
def test_the_permissions_of_a_role(role: str) -> None:
    row = next(row for row in table("The permissions of a role", "role") if row[0] == role)
    user = next(user for user in OURS.users if user.role == role)
    permission = next(permission for permission in OURS.permissions if permission.user == user.name)

    assert [code(cell) for cell in row[1:]] == [
        ",".join(user.tags),
        permission.configure,
        permission.write,
        permission.read,
    ]
