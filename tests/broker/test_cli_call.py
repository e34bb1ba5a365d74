"""`osrdyne call` as a person uses it: a real command, a real broker, a real daemon and workers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.conftest import Vhost
from tests.engines.pool import DaemonProcess, Pool

WORKER = [sys.executable, str(Path(__file__).parents[1] / "engines/library_worker.py")]
#: Where nothing listens: the port of tcpmux, which no machine of ours runs.
NOBODY = "amqp://user:secret@127.0.0.1:1/%2F"


@pytest.fixture(scope="module")
def pool(module_vhost: Vhost, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    """A pool with a daemon; its workers do what a request says."""
    pool = Pool.on(module_vhost.broker, module_vhost.name, delivery_limit=1)
    daemon = DaemonProcess.of(pool, tmp_path_factory.mktemp("daemon"), worker=WORKER)
    try:
        daemon.start()
        yield pool
    finally:
        daemon.close()
        pool.remove_users()


@pytest.fixture
def uri_file(pool: Pool, tmp_path: Path) -> Path:
    file = tmp_path / "client.uri"
    file.write_text(pool.client_uri + "\n")
    return file


def osrdyne(
    *words: str | bytes, stdin: bytes = b"", variables: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "osrdyne.cli", *words]
    environment = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", **(variables or {})}
    return subprocess.run(command, input=stdin, capture_output=True, env=environment, timeout=60, check=False)


Ask = Callable[..., "subprocess.CompletedProcess[bytes]"]


@pytest.fixture
def ask(uri_file: Path) -> Ask:
    """Run `osrdyne call` against the pool."""

    def run(*words: str | bytes, **options: object) -> subprocess.CompletedProcess[bytes]:
        known = ("--pool", "core", "--broker-file", str(uri_file))
        return osrdyne("call", *known, *words, **options)  # type: ignore[arg-type] # stdin is bytes

    return run


def only_line(done: subprocess.CompletedProcess[bytes]) -> str:
    """The one line on standard error."""
    lines = done.stderr.decode().splitlines()
    assert len(lines) == 1, done.stderr.decode()
    assert lines[0].startswith("osrdyne: ")
    return lines[0]


# --- answers ----------------------------------------------------------------------------------------------------------


def test_the_answer_is_all_that_is_printed(ask: Ask) -> None:
    done = ask("42", "hello")

    assert (done.returncode, done.stdout, done.stderr) == (0, b"42|hello", b"")


@pytest.mark.parametrize("key", ["", "-1", "--json", "a b", "é", "a\nb", "xchg"])
def test_any_key_can_be_asked(ask: Ask, key: str) -> None:
    done = ask("--", key, "hello")

    assert (done.returncode, done.stdout) == (0, f"{key}|hello".encode())


def test_the_body_can_come_from_a_file_from_standard_input_and_be_empty(ask: Ask, tmp_path: Path) -> None:
    binary = bytes(range(256))
    (tmp_path / "body").write_bytes(binary)

    assert ask("42", "--file", str(tmp_path / "body")).stdout == b"42|" + binary
    assert ask("42", "-", stdin=binary).stdout == b"42|" + binary
    assert ask("42").stdout == b"42|"
    assert ask("42", b"\xff").stdout == b"42|\xff"


def test_json_has_status_body_headers_time_and_correlation_id(ask: Ask) -> None:
    done = ask("42", "hé", "--json")
    document = json.loads(done.stdout)

    assert (document["status"], document["body"], document["headers"]["x-status"]) == ("ok", "42|hé", "ok")
    assert 0 < document["seconds"] < 60
    assert document["correlation_id"]


def test_a_body_that_is_no_text_is_base64_in_json(ask: Ask) -> None:
    document = json.loads(ask("42", "--json", "-", stdin=b"\xff").stdout)

    assert document["body_base64"] == "NDJ8/w=="
    assert "body" not in document


def test_a_cast_prints_nothing_and_is_done_when_the_broker_has_it(ask: Ask) -> None:
    done = ask("42", "hello", "--cast")

    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert json.loads(ask("42", "hello", "--cast", "--json").stdout)["accepted"] is True


@pytest.mark.parametrize("variable", ["OSRDYNE_CLIENT_URI", "OSRDYNE_CLIENT_URI_FILE"])
def test_pool_and_broker_can_be_in_the_environment(pool: Pool, uri_file: Path, variable: str) -> None:
    value = str(uri_file) if variable.endswith("FILE") else pool.client_uri
    done = osrdyne("call", "42", "hello", variables={"OSRDYNE_CLIENT_POOL": "core", variable: value})

    assert (done.returncode, done.stdout) == (0, b"42|hello")


def test_an_option_wins_over_the_environment(pool: Pool, ask: Ask) -> None:
    assert (
        ask("42", "x", variables={"OSRDYNE_CLIENT_URI": NOBODY, "OSRDYNE_CLIENT_URI_FILE": "/nowhere"}).returncode == 0
    )
    done = osrdyne(
        "call", "--pool", "core", "--broker", pool.client_uri, "42", variables={"OSRDYNE_CLIENT_URI_FILE": "/nowhere"}
    )
    assert done.returncode == 0


# --- no answer --------------------------------------------------------------------------------------------------------


def test_an_error_reply_is_one_line_with_status_meaning_and_reason(ask: Ask) -> None:
    done = ask("42", "error")

    assert done.returncode == 1
    assert done.stdout == b"no such airport"
    line = only_line(done)
    assert line.startswith("osrdyne: error: A worker took the request and answered that it cannot serve it")
    assert "Reason: asked for an error (correlation id " in line
    assert only_line(ask("42", "reject")).startswith("osrdyne: rejected: ")


def test_headers_and_the_deadline_reach_the_worker(ask: Ask) -> None:
    done = ask("42", "headers", "--header", "x-rpc-path=a=b", "--header", "empty=", "--timeout", "50")

    assert b"('empty', ''), ('x-deadline', " in done.stdout
    assert b"('x-rpc-path', 'a=b')" in done.stdout


def test_a_request_that_fails_too_often_says_what_to_look_at(ask: Ask) -> None:
    done = ask("poisoned", "requeue", "--json")
    document = json.loads(done.stdout)

    assert done.returncode == 1
    assert document["status"] == "delivery_limit"
    assert "To do: see the logs of its workers." in only_line(done) == f"osrdyne: {document['error']}"


def test_no_answer_in_time_says_where_the_request_may_be(ask: Ask) -> None:
    done = ask("slow", "sleep 30", "--timeout", "PT0.7S")

    assert done.returncode == 1
    assert "no reply for key 'slow' within 0.7 s: the broker took the request" in only_line(done)


# --- it cannot be asked -----------------------------------------------------------------------------------------------


def refused(done: subprocess.CompletedProcess[bytes]) -> str:
    assert done.returncode == 2, done.stderr.decode()
    assert done.stdout == b""
    return only_line(done)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("42", "x", "--file", "/etc/hostname"), "both BODY and --file are given"),
        (("42", "--file", "/nowhere/body"), "--file /nowhere/body cannot be read: No such file or directory"),
        (("42", "--timeout", "soon"), "--timeout: 'soon' is no duration; give seconds (90 or 1.5)"),
        (("42", "--timeout", "0"), "--timeout: must be longer than 0 seconds"),
        (("42", "--timeout", "-5"), "--timeout: -5.0 is no duration of zero or more"),
        (("42", "--header", "x"), "--header 'x': give NAME=VALUE"),
        (("42", "--header", "x-deadline=5"), "is set from --timeout"),
        (("k" * 256,), "key of 256 bytes; a routing key holds at most 255"),
        ((b"\xff",), "is not UTF-8 text"),
        (("42", "--pool", "Core"), "pool name 'Core': use lower-case letters"),
        (("42", "--pool", "other"), "exchange 'other-req-xchg' is not on the broker: the pool is not set up"),
        (("42", "--header", "x=" + "y" * 200_000), "header"),
    ],
)
def test_what_cannot_be_asked_is_said_in_one_line(ask: Ask, words: tuple[str | bytes, ...], why: str) -> None:
    assert why in refused(ask(*words))


def test_no_broker_says_how_to_name_one() -> None:
    assert "no broker is named; give --broker-file FILE" in refused(osrdyne("call", "--pool", "core", "42"))


def test_two_brokers_are_one_too_many(pool: Pool, ask: Ask) -> None:
    assert "give one of them" in refused(ask("42", "--broker", NOBODY))


@pytest.mark.parametrize(
    ("uri", "why"),
    [
        (NOBODY, "amqp://127.0.0.1:1 (vhost '/', user 'user'): nothing listens there (connection refused)"),
        ("http://user:secret@127.0.0.1", "a broker URI starts with amqp:// or amqps://"),
        ("amqp://127.0.0.1:port", "the broker URI cannot be read"),
    ],
)
def test_a_broker_that_is_away_or_misspelt_is_named_without_password(uri: str, why: str) -> None:
    line = refused(osrdyne("call", "--pool", "core", "42", variables={"OSRDYNE_CLIENT_URI": uri}))

    assert why in line
    assert "secret" not in line


def test_a_wrong_password_and_a_wrong_vhost_are_told_apart(pool: Pool) -> None:
    wrong = pool.client_uri.replace(pool.passwords[pool.users.client], "secret")
    elsewhere = pool.client_uri.replace(pool.vhost, "elsewhere")

    line = refused(osrdyne("call", "--pool", "core", "42", variables={"OSRDYNE_CLIENT_URI": wrong}))
    assert "check user name and password" in line
    assert "secret" not in line
    line = refused(osrdyne("call", "--pool", "core", "42", variables={"OSRDYNE_CLIENT_URI": elsewhere}))
    assert "check the virtual host's name" in line
    assert pool.passwords[pool.users.client] not in line


def test_with_json_an_error_is_a_document_too() -> None:
    done = osrdyne("call", "--pool", "core", "42", "--json", variables={"OSRDYNE_CLIENT_URI": NOBODY})

    assert done.returncode == 2
    assert "nothing listens there" in json.loads(done.stdout)["error"]
