"""`osrdyne call` on a real broker with a real daemon and workers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from testbed.command_line import CommandResult, osrdyne
from testbed.pool import DaemonProcess, Pool
from testbed.workers import LIBRARY
from tests.conftest import Vhost

# One daemon serves the whole module.
pytestmark = pytest.mark.xdist_group("cli-call")


@pytest.fixture(scope="module")
def pool(module_vhost: Vhost, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    """A pool with a daemon; its workers do what a request says."""
    pool = Pool.on(module_vhost.broker, module_vhost.name, delivery_limit=1)
    daemon = DaemonProcess.of(pool, tmp_path_factory.mktemp("daemon"), worker=LIBRARY)
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


Ask = Callable[..., CommandResult]


@pytest.fixture
def ask(uri_file: Path) -> Ask:
    """Run `osrdyne call` against the pool."""

    def run(*words: str | bytes, **options: object) -> CommandResult:
        known = ("--pool", "core", "--broker-file", str(uri_file))
        return osrdyne("call", *known, *words, **options)  # type: ignore[arg-type] # stdin is bytes

    return run


# --- answers ----------------------------------------------------------------------------------------------------------


def test_the_answer_is_all_that_is_printed(ask: Ask) -> None:
    done = ask("42", "hello")

    assert (done.code, done.out, done.err) == (0, b"42|hello", "")


@pytest.mark.parametrize("key", ["", "-1", "--json", "a b", "é", "a\nb", "xchg"])
def test_any_key_can_be_asked(ask: Ask, key: str) -> None:
    done = ask("--", key, "hello")

    assert (done.code, done.out) == (0, f"{key}|hello".encode())


def test_the_body_can_come_from_a_file_from_standard_input_and_be_empty(ask: Ask, tmp_path: Path) -> None:
    binary = bytes(range(256))
    (tmp_path / "body").write_bytes(binary)

    assert ask("42", "--file", str(tmp_path / "body")).out == b"42|" + binary
    assert ask("42", "-", stdin=binary).out == b"42|" + binary
    assert ask("42").out == b"42|"
    assert ask("42", b"\xff").out == b"42|\xff"


def test_json_has_status_body_headers_time_and_correlation_id(ask: Ask) -> None:
    done = ask("42", "hé", "--json")
    document = json.loads(done.out)

    assert (document["status"], document["body"], document["headers"]["x-status"]) == ("ok", "42|hé", "ok")
    assert 0 < document["seconds"] < 60
    assert document["correlation_id"]


def test_a_body_that_is_not_text_is_base64_in_json(ask: Ask) -> None:
    document = json.loads(ask("42", "--json", "-", stdin=b"\xff").out)

    assert document["body_base64"] == "NDJ8/w=="
    assert "body" not in document


def test_a_cast_prints_nothing_and_is_done_when_the_broker_has_it(ask: Ask) -> None:
    done = ask("42", "hello", "--cast")

    assert (done.code, done.out, done.err) == (0, b"", "")
    assert json.loads(ask("42", "hello", "--cast", "--json").out)["accepted"] is True


@pytest.mark.parametrize("variable", ["OSRDYNE_CLIENT_URI", "OSRDYNE_CLIENT_URI_FILE"])
def test_pool_and_broker_can_be_in_the_environment(pool: Pool, uri_file: Path, variable: str) -> None:
    value = str(uri_file) if variable.endswith("FILE") else pool.client_uri
    done = osrdyne("call", "42", "hello", variables={"OSRDYNE_CLIENT_POOL": "core", variable: value})

    assert (done.code, done.out) == (0, b"42|hello")


def test_an_option_wins_over_the_environment(pool: Pool, ask: Ask) -> None:
    elsewhere = {"OSRDYNE_CLIENT_URI": "amqp://127.0.0.1:1", "OSRDYNE_CLIENT_URI_FILE": "/nowhere"}

    assert ask("42", "x", variables=elsewhere).code == 0
    assert osrdyne("call", "--pool", "core", "--broker", pool.client_uri, "42", variables=elsewhere).code == 0


# --- no answer --------------------------------------------------------------------------------------------------------


def test_an_error_reply_is_one_line_with_status_meaning_and_reason(ask: Ask) -> None:
    done = ask("42", "error")

    assert done.code == 1
    assert done.out == b"no such airport"
    line = done.line
    assert line.startswith("osrdyne: error: A worker took the request and answered that it cannot serve it")
    assert "Reason: asked for an error (correlation id " in line
    assert ask("42", "reject").line.startswith("osrdyne: rejected: ")


def test_headers_and_the_deadline_reach_the_worker(ask: Ask) -> None:
    done = ask("42", "headers", "--header", "x-rpc-path=a=b", "--header", "empty=", "--timeout", "50")

    assert b"('empty', ''), ('x-deadline', " in done.out
    assert b"('x-rpc-path', 'a=b')" in done.out


def test_a_request_that_fails_too_often_says_what_to_look_at(ask: Ask) -> None:
    done = ask("poisoned", "requeue", "--json")
    document = json.loads(done.out)

    assert done.code == 1
    assert document["status"] == "delivery_limit"
    assert "To do: see the logs of its workers." in done.line == f"osrdyne: {document['error']}"


def test_no_answer_in_time_says_where_the_request_may_be(ask: Ask) -> None:
    assert ask("slow", "hello").code == 0
    done = ask("slow", "sleep 30", "--timeout", "PT5S")

    assert done.code == 1
    assert "no reply for key 'slow' within 5 s: the broker took the request" in done.line


def test_a_request_that_expires_says_for_what_it_waited(ask: Ask) -> None:
    assert ask("busy", "hello").code == 0
    assert ask("busy", "sleep 15", "--cast").code == 0
    # The answer comes half a second before the command gives up, which is as much as there can be.
    done = ask("busy", "hello", "--timeout", "10", "--json")

    assert done.code == 1
    document = json.loads(done.out)
    assert (document["status"], document["headers"]["x-expired-at"]) == ("expired", "queue")
    assert "Where: queue: Workers of its key had shown life, and none began with it in time." in done.line


# --- it cannot be asked -----------------------------------------------------------------------------------------------


def refused(done: CommandResult) -> str:
    assert done.code == 2, done.err
    assert done.out == b""
    return done.line


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("42", "--pool", "other"), "is --pool right, and is this a client of that pool?"),
        (("42", "--header", "x=" + "y" * 200_000), "header"),
        (("k" * 256,), "key of 256 bytes; a routing key holds at most 255"),
        ((b"\xff",), "is not UTF-8 text"),
    ],
)
def test_a_call_that_cannot_be_made_is_an_error_of_one_line(ask: Ask, words: tuple[str | bytes, ...], why: str) -> None:
    assert why in refused(ask(*words))


def test_a_wrong_password_and_a_wrong_vhost_are_distinguished(pool: Pool) -> None:
    wrong = pool.client_uri.replace(pool.passwords[pool.users.client], "secret")
    elsewhere = pool.client_uri.replace(pool.vhost, "elsewhere")

    line = refused(osrdyne("call", "--pool", "core", "42", variables={"OSRDYNE_CLIENT_URI": wrong}))
    assert "check user name and password" in line
    assert "secret" not in line
    line = refused(osrdyne("call", "--pool", "core", "42", variables={"OSRDYNE_CLIENT_URI": elsewhere}))
    assert "check the virtual host's name" in line
    assert pool.passwords[pool.users.client] not in line


def test_a_pool_that_is_not_set_up_is_an_error_that_says_so(pool: Pool, tmp_path: Path) -> None:
    (tmp_path / "uri").write_text(pool.broker.amqp_uri(vhost=pool.vhost))
    line = refused(osrdyne("call", "--pool", "other", "--broker-file", str(tmp_path / "uri"), "42"))

    assert "'other-req-xchg'" in line
    assert "the pool is not set up" in line
    assert "apply its topology" in line
