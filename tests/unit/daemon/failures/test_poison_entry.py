"""What an entry of the poison inventory says, what is sent again of it, and the record of what was removed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from osrdyne.commands.poison import audit_file
from osrdyne.commands.poison import entry as poison_entry
from osrdyne.commands.poison import text as poison_text
from osrdyne.commands.poison.entry import Selection
from osrdyne.failures import dead_letter_rules
from osrdyne.state.delivery_history import PastDelivery
from osrdyne_amqp import Message, Properties
from osrdyne_protocol import headers
from osrdyne_runtime.console import output


def message(body: bytes = b"body", *, malformed: str | None = None, **properties: Any) -> Message:
    return Message(body, "", "core-poison", Properties(**properties), 1, redelivered=False, malformed=malformed)


def kept(**given: Any) -> Message:
    """An entry as the dead-letter responder makes it."""
    letter = message(headers=given, correlation_id="7", reply_to="reply-1", expiration="5", user_id="guest")
    properties = dead_letter_rules.kept(
        letter,
        poison_id="6f1c",
        reason="delivery_limit",
        detail="failed",
        key="LAX",
        queue="core-req-LAX",
        attempts=[PastDelivery("w-1", 5), PastDelivery("w-2", 6)],
        now_ms=9,
    )
    return message(**{name: value for name, value in vars(properties).items() if value is not None})


def test_an_entry_says_what_the_responder_wrote() -> None:
    entry = poison_entry.read(kept(**{"x-delivery-count": 3, "x-acquired-count": 5}))
    assert (entry.id, entry.reason, entry.detail, entry.key) == ("6f1c", "delivery_limit", "failed", "LAX")
    assert (entry.queue, entry.time_ms, entry.deliveries, entry.correlation_id) == ("core-req-LAX", 9, 5, "7")
    assert entry.attempts == (PastDelivery("w-1", 5), PastDelivery("w-2", 6))
    assert entry.size == 4


def test_where_the_broker_does_not_say_how_often_a_request_was_given_out_the_workers_do() -> None:
    assert poison_entry.read(kept()).deliveries == 2
    assert dead_letter_rules.deliveries(message()) is None


def test_a_replayed_request_that_dies_again_has_an_identity_of_its_own() -> None:
    again = kept(**{headers.X_POISON_ID: "old", headers.X_POISON_ATTEMPTS: [], headers.X_POISON_DELIVERIES: 9})
    assert poison_entry.read(again).id == "6f1c"
    assert poison_entry.read(again).deliveries == 2


@pytest.mark.parametrize("identity", [{headers.X_POISON_ID: "6f1c"}, {}])
def test_an_entry_whose_headers_have_names_that_are_not_text_can_be_looked_at(
    identity: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    strange: Any = {b"\xff": "first", "text": [{b"\xfe": "second"}]}
    one = message(headers=strange | identity)
    entry = poison_entry.read(one)
    poison_text.print_whole(entry, one)
    assert "first" in capsys.readouterr().out
    output.print_json(poison_text.whole_document(entry, one))
    given = json.loads(capsys.readouterr().out)["headers"]
    assert (given[r"\xff"], given["text"]) == ("first", [{r"\xfe": "second"}])


def test_an_entry_without_an_identity_has_the_same_at_each_look_and_another_than_others() -> None:
    first = message(headers={"a": 1})
    looked_at = message(headers={"a": 1, "x-delivery-count": 2, "x-acquired-count": 7})
    assert poison_entry.read(first).id == poison_entry.read(looked_at).id
    others = [message(b"other", headers={"a": 1}), message(headers={"a": 2}), message(correlation_id="7")]
    assert len({poison_entry.read(entry).id for entry in (first, *others)}) == 4


def test_what_was_added_on_the_way_is_left_behind_when_an_entry_is_sent_again() -> None:
    way = {
        "x-death": [{}],
        "x-first-death-reason": "delivery_limit",
        "x-delivery-count": 3,
        "x-acquired-count": 3,
        headers.X_HOPS: 12,
        headers.X_FIRST_SEEN: 1,
        headers.X_ANSWERED: True,
        headers.X_PUBLISH_ID: "x",
        "CC": ["a"],
    }
    entry = kept(**way, **{"x-deadline": 5, "mine": "kept"})
    properties = poison_entry.replayed(entry, keep_deadline=False)
    assert properties.headers == {"mine": "kept"}
    assert (properties.expiration, properties.user_id, properties.delivery_mode) == (None, None, 2)
    assert (properties.reply_to, properties.correlation_id) == ("reply-1", "7")
    assert poison_entry.replayed(entry, keep_deadline=True).headers == {"mine": "kept", "x-deadline": 5}
    assert headers.X_POISON_ID in entry.properties.headers


@pytest.mark.parametrize(
    ("one", "why"),
    [
        (message(malformed="its properties cannot be read"), "its properties cannot be read"),
        (message(), "its key is not known"),
        (message(headers={headers.X_POISON_KEY: "a\0b"}), "NUL"),
    ],
)
def test_what_cannot_be_sent_again_says_why(one: Message, why: str) -> None:
    assert why in str(poison_entry.unplayable(poison_entry.read(one), one))


def test_entries_are_selected_by_id_by_key_or_all() -> None:
    entry, keyless = poison_entry.read(kept()), poison_entry.read(message())
    assert entry in Selection.of(["6f1c"])
    assert entry in Selection(keys=frozenset({"LAX"}))
    assert entry not in Selection(keys=frozenset({"SFO"}))
    assert entry not in Selection()
    assert keyless not in Selection(keys=frozenset({""}))
    assert keyless in Selection(everything=True)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
names = st.sampled_from(sorted(headers.POISON | {"x-death", "mine"}))


@given(st.dictionaries(names, values), st.none() | st.text(max_size=5) | st.binary(max_size=5))
def test_any_message_in_the_inventory_is_an_entry(given_headers: dict[str, Any], correlation_id: str | bytes) -> None:
    one = message(headers=given_headers, correlation_id=correlation_id)
    entry = poison_entry.read(one)
    assert entry.id or headers.X_POISON_ID in given_headers
    poison_entry.unplayable(entry, one)
    poison_entry.replayed(one, keep_deadline=False)


def test_the_audit_file_has_a_line_for_each_entry_and_names_the_person(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "audit.jsonl"
    monkeypatch.setenv("SUDO_USER", "anna")
    for action in ("buried", "replayed"):
        with audit_file.opened(file) as write:
            write(action, "core", poison_entry.read(kept()))
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [line["action"] for line in lines] == ["buried", "replayed"]
    assert all(line["who"].startswith("anna as ") for line in lines)
    assert {line["id"] for line in lines} == {"6f1c"}


def test_an_audit_file_that_cannot_be_written_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(audit_file.CannotAudit, match="name another one with --audit"), audit_file.opened(tmp_path):
        raise AssertionError("a directory was opened as a file")
