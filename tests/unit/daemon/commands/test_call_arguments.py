"""`osrdyne call` refuses what it cannot ask before it asks: one line, exit status 2, no password."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from osrdyne.commands import call as module
from osrdyne_calls.errors import WorkerFailed
from testbed.command_line import CommandResult, osrdyne

#: Where nothing listens: the port of tcpmux.
NOBODY = "amqp://user:secret@127.0.0.1:1/%2F"


def call(*words: str, uri: str = NOBODY) -> CommandResult:
    return osrdyne("call", "--pool", "core", *words, variables={"OSRDYNE_CLIENT_URI": uri})


def refused(done: CommandResult) -> str:
    assert (done.code, done.out) == (2, b""), done
    assert "secret" not in done.err
    return done.line


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("42", "x", "--file", "/dev/null"), "both BODY and --file are given"),
        (("42", "--file", "/nowhere/body"), "--file /nowhere/body cannot be read: No such file or directory"),
        (("42", "--timeout", "soon"), "--timeout: 'soon' is not a duration; give seconds (90 or 1.5)"),
        (("42", "--timeout", "0"), "--timeout: must be longer than 0 seconds"),
        (("42", "--timeout", "-5"), "--timeout: -5.0 is not a duration of zero or more"),
        (("42", "--timeout", "inf"), "--timeout: inf is not a duration of zero or more"),
        (("42", "--header", "x"), "--header 'x': give NAME=VALUE"),
        (("42", "--header", "=x"), "--header '=x': give NAME=VALUE"),
        (("42", "--header", "x-deadline=5"), "--header x-deadline: is set from --timeout"),
        (("42", "--pool", "Core"), "pool name 'Core': use lower-case letters"),
        (
            ("42", "--broker-file", "/nowhere/uri"),
            "--broker-file: cannot be read: No such file or directory: ",
        ),
        (("42", "--broker", NOBODY, "--broker-file", "/dev/null"), "is given twice, itself and as a file; give one"),
    ],
)
def test_a_wrong_argument_is_named_with_what_would_be_right(words: tuple[str, ...], why: str) -> None:
    assert why in refused(call(*words))


@pytest.mark.parametrize(
    ("uri", "why"),
    [
        (NOBODY, "amqp://127.0.0.1:1 (vhost '/', user 'user'): nothing listens there (connection refused)"),
        ("http://user:secret@127.0.0.1", "the broker URI does not start with amqp:// or amqps://"),
        ("amqp://user:secret@127.0.0.1:port", "the broker URI has a port that is not a number"),
        ("", "--broker: is missing; name a file that holds it by --broker-file, or set OSRDYNE_CLIENT_URI"),
    ],
)
def test_a_broker_that_is_away_or_misspelt_is_named_without_password(uri: str, why: str) -> None:
    assert why in refused(call("42", uri=uri))


def test_an_empty_broker_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "uri").touch()

    assert "--broker-file: is empty: " in refused(call("42", "--broker-file", str(tmp_path / "uri")))


def test_with_json_an_error_is_a_document_too() -> None:
    done = call("42", "--json")

    assert done.code == 2
    assert "nothing listens there" in json.loads(done.out)["error"]
    assert "nothing listens there" in done.line


def test_a_missing_pool_is_a_usage_error() -> None:
    done = osrdyne("call", "42")

    assert done.code == 64
    assert "--pool" in done.err


def test_help_warns_of_a_password_on_the_command_line() -> None:
    text = " ".join(osrdyne("call", "--help").out.decode().split())

    assert "can be seen in the list of processes: prefer --broker-file" in text


def test_the_version_is_shown() -> None:
    assert osrdyne("--version").out.startswith(b"osrdyne 0.")


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"KeyError: '9'\nmore", "It says: KeyError: '9' Reason: the handler raised an exception "),
        (b"\xff", "why. Reason: "),
    ],
)
def test_the_line_of_an_error_reply_has_the_first_line_of_its_body(body: bytes, says: str) -> None:
    error = WorkerFailed(status="error", body=body, reason="the handler raised an exception")
    assert says in module._meaning(error)
