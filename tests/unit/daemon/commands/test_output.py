"""What commands print: keys that look different, tables that no worker's words can break, errors of one line."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from osrdyne.commands.status_table import render, span
from osrdyne_runtime.console.output import shown
from testbed.command_line import osrdyne

KEY: dict[str, Any] = {
    "key": "42",
    "state": "failed",
    "ready": 3,
    "unacknowledged": 0,
    "consumers": None,
    "workers": 0,
    "last_error": "exit 3",
    "unbinds_in": 598.2,
    "stops_in": None,
}
DOCUMENT: dict[str, Any] = {
    "ready": True,
    "pool": "core",
    "instance": "prod",
    "state": "leading",
    "detail": None,
    "driver": "noop",
    "alarm": None,
    "queues": {"core-orphan": 0, "core-dl": None, "core-poison": 7},
    "counts_age": 11.2,
    "keys": [KEY],
}


def text(document: dict[str, Any], key: str | None = None) -> str:
    console = Console(width=4000, file=io.StringIO(), highlight=False)
    console.print(render(document, key))
    assert isinstance(console.file, io.StringIO)
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines())


@pytest.mark.parametrize(
    ("key", "as_shown"),
    [
        ("42", "42"),
        ("infra=42,timetable=24", "infra=42,timetable=24"),
        ("é", "é"),
        ("a b", "a b"),
        ("", "''"),
        (" a", "' a'"),
        ("a\nb", r"'a\nb'"),
        ("\x1b[31m", r"'\x1b[31m'"),
        ("''", "\"''\""),
        ("a\\nb", r"'a\\nb'"),
        ("\u202eabc", r"'\u202eabc'"),
    ],
)
def test_a_key_is_shown_as_it_is_or_quoted_and_escaped(key: str, as_shown: str) -> None:
    assert shown(key) == as_shown


@given(st.text(), st.text())
def test_two_keys_never_look_the_same(one: str, other: str) -> None:
    assert (shown(one) == shown(other)) == (one == other)
    assert shown(one).isprintable()


END: dict[str, Any] = {
    "key": "42",
    "event": "worker-ended",
    "how": "exit 1",
    "reason": "worker exited with status 1",
    "worker": "core-42-1",
    "ran_seconds": 0.2,
    "started": False,
    "held": 0,
    "output": ["Traceback", "FileNotFoundError: data/XX.json"],
    "log": "/logs/42.log",
    "ago": 63.0,
}


@pytest.mark.parametrize("keys", [[KEY], []])
def test_a_key_that_was_asked_for_shows_how_its_workers_ended_also_when_it_has_gone(
    keys: list[dict[str, Any]],
) -> None:
    lines = text({**DOCUMENT, "keys": keys, "ends": [END]}, "42").splitlines()

    assert lines[-3:] == [
        "1m03s ago, worker-ended, exit 1, ran 0s, before started: worker exited with status 1",
        "    Traceback",
        "    FileNotFoundError: data/XX.json",
    ]
    assert "it was not called lately" not in " ".join(lines)
    assert "Traceback" not in text({**DOCUMENT, "keys": keys, "ends": [END]})


def test_the_table_shows_all_that_is_known_of_a_key() -> None:
    lines = text(DOCUMENT).splitlines()

    assert lines[0] == "pool core, instance prod: leading (acts)"
    assert lines[1] == "messages in core-orphan 0, core-dl unknown, core-poison 7"
    assert lines[2] == "driver noop, 1 key(s), message counts up to 12s old"
    assert lines[3].split("  ")[0] == "key"
    assert lines[4].split() == ["42", "failed", "3", "0", "-", "0", "9m58s", "-", "exit", "3"]


def test_message_counts_that_were_not_read_yet_are_unknown_and_have_no_age() -> None:
    assert text(DOCUMENT | {"counts_age": None}).splitlines()[2] == "driver noop, 1 key(s), message counts unknown"
    assert text(DOCUMENT | {"keys": []}).splitlines()[2] == "driver noop, 0 key(s)"


def test_a_daemon_that_cannot_act_says_why() -> None:
    shown_text = text(DOCUMENT | {"state": "waiting", "detail": "nothing listens there"})

    assert "waiting (cannot act, and tries again by itself; workers go on)\nwhy: nothing listens there" in shown_text


def test_a_management_api_that_does_not_answer_is_reported_above_the_keys() -> None:
    shown_text = text(DOCUMENT | {"uncounted": "no management API at http://b:15672: refused"})

    assert "\nmessages are not counted: no management API at http://b:15672: refused\n" in shown_text


def test_a_warning_is_shown_above_the_keys() -> None:
    assert "\nwarning: core-parked holds 2" in text(DOCUMENT | {"warnings": ["core-parked holds 2 message(s)"]})


def test_an_alarm_of_the_broker_is_shown_above_the_keys() -> None:
    assert "\nbroker alarm (memory): it takes no publishes until that is over" in text(DOCUMENT | {"alarm": "memory"})


def test_a_daemon_that_does_not_lead_says_that_its_keys_are_old_or_that_another_leads() -> None:
    assert "the keys as this daemon last knew them:\nkey " in text(DOCUMENT | {"state": "waiting"})
    assert "no key is known yet" in text(DOCUMENT | {"state": "waiting", "keys": []}, "42")
    standby = text(DOCUMENT | {"state": "standby", "keys": []}, "42")
    assert "another daemon leads" in standby
    assert "ask the daemon that leads about keys" in standby


def test_a_pool_without_keys_and_a_key_that_is_not_there_get_a_sentence() -> None:
    assert "no key was called lately" in text(DOCUMENT | {"keys": []})
    assert r"key 'a\nb' has no queue and no workers" in text(DOCUMENT | {"keys": []}, "a\nb")


def test_text_of_workers_controls_neither_the_terminal_nor_the_markup() -> None:
    evil = KEY | {"key": "[bold]x[/bold]", "last_error": "\x1b]0;title\x07[red]bad[/red]\nnext"}
    line = text(DOCUMENT | {"keys": [evil]}).splitlines()[4]

    assert line.startswith("[bold]x[/bold]")
    assert line.endswith(r"\x1b]0;title\x07[red]bad[/red]\nnext")


@pytest.mark.parametrize(
    ("seconds", "as_text"),
    [
        (None, "-"),
        (0, "0s"),
        (-3, "0s"),
        (59.4, "59s"),
        (59.6, "1m00s"),
        (598, "9m58s"),
        (3600, "1h00m"),
        (90_000, "25h00m"),
    ],
)
def test_a_duration_can_be_read_at_a_glance(seconds: float | None, as_text: str) -> None:
    assert span(seconds) == as_text


# --- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (
            ("status", "--url", "http://127.0.0.1:1"),
            "no daemon answers at http://127.0.0.1:1: Connection refused; is it",
        ),
        (("status", "--url", "127.0.0.1:8042"), "give an address such as http://127.0.0.1:8042"),
        (("status", "--url", "http://h:8042?cacertfile=/a"), "--url has a user or a query; give an address such as"),
        (("status", "--url", "http://h", "--settings", "f"), "--url and --settings name two addresses"),
        (("status", "--settings", "/nowhere.toml"), "/nowhere.toml: does not exist; name the settings file with"),
        (("lint", "--settings", "/nowhere.toml"), "/nowhere.toml: does not exist; name the settings file with"),
        (("daemon", "--settings", "/nowhere.toml"), "/nowhere.toml: does not exist; name the settings file with"),
    ],
)
def test_an_error_is_one_line_that_says_what_where_and_what_to_do(words: tuple[str, ...], why: str) -> None:
    done = osrdyne(*words)

    assert (done.code, done.out) == (2, b"")
    assert why in done.line


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ("[pool", "is not TOML: "),
        ("", "pool"),
        ('[pool]\nname = "core"\nunbind_dely = 3', "pool.unbind_dely: is not a setting; known are"),
        ('[pool]\nname = "core"\nunbind_delay = -3', "pool.unbind_delay: -3 is not a duration of zero or more seconds"),
        ('[pool]\nname = "core"\n[broker]\n[driver]\nkind = "magic"', "'noop'"),
        ('[pool]\nname = "core"\n[broker]\nvhost = "x"\n[driver]\nkind = "noop"', "broker.vhost: is not a setting"),
    ],
)
def test_an_error_in_settings_is_one_line_that_names_the_file(settings: str, why: str, tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text(settings)

    done = osrdyne("lint", "--settings", str(file))

    assert done.code == 2
    assert why in done.line
    assert str(file) in done.line
