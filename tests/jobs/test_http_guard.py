"""Who may ask the jobs' administration: decided by the headers of a request, and seen on a real server."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from sqlalchemy import Engine

from osrdyne_jobs import engine_for, migrate
from osrdyne_jobs.commands.serve import token
from osrdyne_jobs.errors import CannotServe
from osrdyne_jobs.http import create_app, endpoints, guard, serve
from osrdyne_runtime.door import Door
from osrdyne_runtime.serve import answers
from testbed import odd_headers
from testbed.waiting import PATIENCE_SECONDS
from tests.jobs.administration import TOKEN, Administration, administration

JSON = {"content-type": "application/json"}
BEARER = {"authorization": f"Bearer {TOKEN}"}


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    made = engine_for(f"sqlite:///{tmp_path / 'jobs.db'}")
    migrate(made)
    yield made
    made.dispose()


@pytest.fixture
def guarded(engine: Engine) -> Iterator[Administration]:
    with administration(engine) as served:
        yield served


@pytest.fixture
def unguarded(engine: Engine) -> Iterator[Administration]:
    with administration(engine, token=None) as served:
        yield served


def status(method: str, path: str, headers: dict[str, str], *, token: str | None = TOKEN) -> int | None:
    refused = guard.refusal(method, path, headers, token)
    return None if refused is None else refused.status


@pytest.mark.parametrize(
    "header",
    ["", TOKEN, "Bearer", "Bearer ", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", f"Basic {TOKEN}", "Bearer \xe9"],
)
def test_a_request_without_the_token_is_refused(header: str) -> None:
    assert status("GET", "/api/jobs", {"authorization": header}) == 401
    assert status("GET", "/metrics", {"authorization": header}) == 401


def test_a_token_that_changed_counts_at_the_next_request(
    engine: Engine, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file, other = tmp_path / "token", TOKEN[::-1]
    file.write_text(TOKEN)
    with administration(engine, token=file.read_text) as served:

        def answers(token: str) -> int:
            return served.ask("GET", "/api/jobs", authorization=f"Bearer {token}").status

        assert (answers(TOKEN), answers(other)) == (200, 401)
        file.write_text(other)
        assert (answers(TOKEN), answers(other)) == (401, 200)
        # What cannot be used changes nothing, and is said once.
        file.unlink()
        assert (answers(TOKEN), answers(other)) == (401, 200)
        file.write_text("short")
        assert (answers("short"), answers(other)) == (401, 200)
    assert [record.getMessage()[:24] for record in caplog.records if "token" in record.getMessage()] == [
        "the token cannot be read"
    ] * 2


@pytest.mark.parametrize("wrong", [b"\xff" * 20, "ключ от дома, длинный".encode(), b"\xef\xbb", b"\0" * 20, b"short"])
def test_a_token_that_cannot_be_used_any_more_leaves_the_last_one(engine: Engine, tmp_path: Path, wrong: bytes) -> None:
    for read in (tmp_path.joinpath("token").read_text, token(tmp_path / "token")):
        (tmp_path / "token").write_text(TOKEN)
        with administration(engine, token=read) as served:
            assert served.ask("GET", "/api/jobs", authorization=f"Bearer {TOKEN}").status == 200
            (tmp_path / "token").write_bytes(wrong)
            assert served.ask("GET", "/api/jobs", authorization=f"Bearer {TOKEN}").status == 200


def test_odd_bytes_in_headers_and_queries_are_not_an_error_of_the_server(engine: Engine) -> None:
    async def statuses(port: int) -> set[int]:
        found = set()
        for method, path in (("GET", "/api/jobs?state=%ff%00&type=%ff"), ("GET", "/metrics"), ("POST", "/api/jobs")):
            for lines in odd_headers.headers(authorization=f"Bearer {TOKEN}", content_type="application/json"):
                found.add(await odd_headers.status(port, method, path, lines))
        return found

    with administration(engine) as served:
        found = asyncio.run(statuses(served.port))
    assert {200, 401} <= found
    assert max(found) < 500


@pytest.mark.parametrize("header", [f"Bearer {TOKEN}", f"bearer {TOKEN}", f"Bearer  {TOKEN} "])
def test_a_request_with_the_token_is_answered_by_whatever_name_it_came(header: str) -> None:
    assert status("GET", "/api/jobs", {"authorization": header, "host": "jobs.example"}) is None


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:80", "127.0.0.1:8043", "127.9.9.9", "[::1]:8043", "[::1]"])
def test_without_a_token_requests_to_this_machine_are_answered(host: str) -> None:
    assert status("GET", "/api/jobs", {"host": host}, token=None) is None


@pytest.mark.parametrize(
    "host",
    ["", "evil.example", "evil.example:8043", "localhost.evil.example", "127.0.0.1.evil.example", "10.0.0.1", "[::2]"],
)
def test_without_a_token_requests_by_another_name_are_refused(host: str) -> None:
    for path in ("/api/jobs", "/", "/healthz"):
        assert status("GET", path, {"host": host}, token=None) == 403


@pytest.mark.parametrize(
    "kind",
    ["", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "text/plain;application/json"],
)
def test_what_a_form_of_another_site_can_send_is_refused(kind: str) -> None:
    assert status("POST", "/api/jobs/1/redo", {"host": "localhost", "content-type": kind}, token=None) == 415
    assert status("POST", "/api/jobs/1/redo", {**BEARER, "content-type": kind}) == 415
    sent = {"host": "localhost", "content-type": "Application/JSON; charset=utf-8"}
    assert status("POST", "/api/jobs/1/redo", sent, token=None) is None


def test_a_browser_gets_no_permission_to_ask_for_another_site(unguarded: Administration) -> None:
    asked = {"origin": "http://evil.example", "access_control_request_method": "POST"}
    for path in ("/api/jobs", "/api/jobs/1"):
        answer = unguarded.ask("OPTIONS", path, **asked, access_control_request_headers="content-type")
        assert answer.status == 405
        assert not [name for name in answer.headers if name.startswith("access-control")]


@pytest.mark.parametrize(
    "path",
    ["/api/jobs", "/api/jobs/1", "/api/jobs/figures", "/metrics", "/openapi.json", "/nothing", "//", "/page.css/"],
)
def test_all_but_the_files_of_the_page_and_the_health_needs_the_token(guarded: Administration, path: str) -> None:
    answer = guarded.ask("GET", path, authorization="")
    assert (answer.status, answer.headers["www-authenticate"]) == (401, "Bearer")
    assert "token" in answer.json["error"]
    assert TOKEN not in answer.text


def test_the_files_of_the_page_and_the_health_need_no_token(guarded: Administration) -> None:
    found = {path: guarded.ask("GET", path, authorization="") for path in guard.OPEN}
    assert {path: answer.status for path, answer in found.items()} == dict.fromkeys(guard.OPEN, 200)
    assert found["/healthz"].text == "ok\n"


def test_without_a_token_all_is_answered_on_loopback(unguarded: Administration) -> None:
    assert unguarded.get("/api/jobs") == {"jobs": [], "next": None}
    assert unguarded.ask("GET", "/api/jobs", host="evil.example").status == 403
    assert unguarded.ask("POST", "/api/jobs/1/redo", content_type="text/plain").status == 415
    assert unguarded.ask("POST", "/api/jobs/1/redo").status == 404


def test_every_answer_forbids_what_the_page_does_not_need(guarded: Administration) -> None:
    for path, headers in {"/": {}, "/api/jobs": {}, "/nothing": {}, "/metrics": {"authorization": ""}}.items():
        answer = guarded.ask("GET", path, **headers)
        expected = guard.HEADERS | {name.lower(): value for name, value in answers.HEADERS.items()}
        assert {name: answer.headers.get(name) for name in expected} == expected
    rules = guard.HEADERS["content-security-policy"]
    assert rules.startswith("default-src 'none'; script-src 'self';")
    assert "unsafe" not in rules


@pytest.mark.parametrize("chunked", [False, True], ids=["whole", "in chunks"])
def test_a_body_that_is_too_large_is_refused(guarded: Administration, chunked: bool) -> None:
    body = b" " * (endpoints.MOST_BODY + 1)
    headers: dict[str, Any] = {"transfer_encoding": "chunked"} if chunked else {}
    if chunked:
        body = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    answer = guarded.ask("POST", "/api/jobs", body, **headers)
    assert (answer.status, "bytes" in answer.json["error"]) == (413, True)


def until_closed(served: Administration, said: str) -> bytes:
    """Return what the server answers to this before it closes the connection."""
    with socket.create_connection(("127.0.0.1", served.port), timeout=PATIENCE_SECONDS) as one:
        one.sendall(said.replace("\n", "\r\n").encode())
        answer = b""
        while got := one.recv(65_536):
            answer += got
        return answer


def test_half_a_request_is_not_kept(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("osrdyne_jobs.http.server.Door", partial(Door, patience=1.0))
    monkeypatch.setattr(endpoints, "BODY_SECONDS", 1.0)
    known = f"POST /api/jobs HTTP/1.1\nHost: x\nAuthorization: Bearer {TOKEN}\nContent-Type: application/json\n"
    with administration(engine) as served:
        assert until_closed(served, "GET /api/jobs HTTP/1.1\nHost:") == b""
        assert until_closed(served, "") == b""
        assert b"408" in until_closed(served, f"{known}Content-Length: 100\n\n{{").partition(b"\r\n")[0]
        assert served.ask("GET", "/api/jobs").status == 200


@pytest.mark.parametrize("path", ["/", "/healthz", "/page.js", "/api/jobs"])
def test_the_connection_of_a_stranger_ends_with_its_answer(guarded: Administration, path: str) -> None:
    assert until_closed(guarded, f"GET {path} HTTP/1.1\nHost: x\n\n").startswith(b"HTTP/1.1 ")


def refused(engine: Engine, *, port: int = 0, host: str = "127.0.0.1", token: str | None = None) -> str:
    """Return why it cannot be served. If it can, it ends at once."""
    stop = Event()
    stop.set()
    with pytest.raises(CannotServe) as error:
        serve(engine, host=host, port=port, token=token, stop=stop)
    return str(error.value)


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_without_a_token_only_a_loopback_address_is_listened_on(engine: Engine, host: str) -> None:
    assert refused(engine, host=host).endswith("set a token, or listen on 127.0.0.1")


@pytest.mark.parametrize("token", ["", "short", "a" * 15, "blanks within the token", "é" * 20, "a" * 20 + "\n"])
def test_a_token_that_is_short_or_cannot_be_sent_is_refused(engine: Engine, token: str) -> None:
    with pytest.raises(CannotServe, match="a token has"):
        create_app(engine, token=token)


def test_an_address_that_is_taken_or_does_not_exist_is_named(engine: Engine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        reason = refused(engine, port=port)
    assert reason.startswith(f"cannot listen on 127.0.0.1, port {port}: ")
    assert refused(engine, host="no-such-host.invalid").startswith("cannot listen on no-such-host.invalid")
    assert refused(engine, port=70_000) == "70000 is not a port: choose one from 1 to 65535, or 0 for any"


def test_a_server_that_is_stopped_leaves_its_port_at_once(engine: Engine) -> None:
    with administration(engine) as served:
        port = served.port
    with socket.create_server(("127.0.0.1", port)):
        pass
