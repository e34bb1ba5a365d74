"""The one client of the management API, against a server in this process: what it sends, and how it takes answers."""

from __future__ import annotations

import base64
import contextlib
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, ClassVar

import pytest

from osrdyne.broker.management_api import ManagementApi
from osrdyne.errors import ManagementError
from osrdyne_infra.broker.management import Management
from osrdyne_infra.errors import BrokerUnusable
from osrdyne_pool.broker.management import ManagementAway, ManagementClient, ManagementRefused, ManagementUnreadable
from testbed.plugins import plugin


class AnsweringHandler(BaseHTTPRequestHandler):
    """Answers all requests in one way, and keeps them."""

    answer: tuple[int, bytes, dict[str, str]]
    seen: ClassVar[list[Any]]

    def _any(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        self.seen.append((self.command, self.path, str(self.headers["authorization"]), body))
        status, text, headers = self.answer
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_PUT = _any  # noqa: N815 - their names are those of http.server

    def log_message(self, *_: Any) -> None:
        pass


@contextlib.contextmanager
def answering(status: int, text: bytes = b"", **headers: str) -> Iterator[tuple[str, list[Any]]]:
    """Serve one answer; gives the address and what came."""

    class Handler(AnsweringHandler):
        answer = (status, text, headers)
        seen: ClassVar[list[Any]] = []

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", Handler.seen
        server.shutdown()


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@pytest.mark.parametrize("tail", ["", "/", "/api", "/api/"])
def test_a_path_is_quoted_and_the_log_in_is_sent_as_utf_8(tail: str) -> None:
    with answering(200, b'{"a": 1}') as (url, seen):
        found = ManagementClient(url + tail, "user", "zw\u00f6lf\u20ac").call(
            "GET", "queues", "/", "a b", query={"x": "y&z"}
        )

    assert found == {"a": 1}
    ((method, path, login, _),) = seen
    assert (method, path) == ("GET", "/api/queues/%2F/a%20b?x=y%26z")
    assert base64.b64decode(login.removeprefix("Basic ")).decode() == "user:zw\u00f6lf\u20ac"


def test_a_body_is_json_and_nothing_may_come_back() -> None:
    with answering(201) as (url, seen):
        assert ManagementClient(url, "u", "p").call("PUT", "queues", "v", "q", body={"durable": True}) is None

    assert seen[0][3] == b'{"durable": true}'


def test_no_proxy_of_the_environment_gets_the_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{closed_port()}")
    monkeypatch.delenv("no_proxy", raising=False)

    with answering(200, b"[]") as (url, _):
        assert ManagementClient(url, "u", "p").call("GET", "queues") == []


@pytest.mark.parametrize("who", ["client", "Ansible module"])
def test_a_redirect_is_not_followed_with_the_password(who: str) -> None:
    with answering(200, b"[]") as (other, seen), answering(302, location=f"{other}/api/queues") as (url, _):
        if who == "client":
            with pytest.raises(ManagementRefused, match="302"):
                ManagementClient(url, "u", "p").call("GET", "queues")
        else:
            module = plugin("modules/osrdyne_topology.py")
            given = {"url": url, "admin": "u", "admin_password": "p", "timeout": 5, "certificate_faults": {}, "tls": {}}
            with pytest.raises(module.TopologyRefused, match="302"):
                module.Api(given, rehearse=False).get("queues")

    assert seen == []


async def test_daemon_and_stack_name_the_setting_where_the_api_redirects() -> None:
    with answering(301, location="http://127.0.0.1:9/") as (url, _):
        with pytest.raises(ManagementError, match=r"answered 301: it redirects.*management_uri"):
            await ManagementApi(url.replace("://", "://u:p@"), "v").topology()
        with pytest.raises(BrokerUnusable, match=r"redirects \(301\).*osrdyne:broker\.management"):
            Management(url, "u", "p").check()


def test_a_refusal_has_status_and_the_brokers_reason_and_no_password() -> None:
    with answering(401, b'{"error": "x", "reason": "Not_Authorized"}') as (url, _):
        with pytest.raises(ManagementRefused) as caught:
            ManagementClient(url, "u", "hunter2").call("GET", "whoami")
        assert "hunter2" not in repr(ManagementClient(url, "u", "hunter2"))

    assert (caught.value.status, caught.value.reason) == (401, "Not_Authorized")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("text", [b"<html>", b'["unexpected"]', b"", b"[" * 5000])
def test_a_refusal_of_a_stranger_has_no_reason(text: bytes) -> None:
    with answering(500, text) as (url, _), pytest.raises(ManagementRefused) as caught:
        ManagementClient(url, "u", "p").call("GET", "whoami")

    assert caught.value.reason == ""


def test_what_is_not_there_is_found_as_none_and_other_refusals_stay() -> None:
    with answering(404, b"{}") as (url, _):
        assert ManagementClient(url, "u", "p").find("vhosts", "v") is None
    with answering(503, b"{}") as (url, _), pytest.raises(ManagementRefused):
        ManagementClient(url, "u", "p").find("vhosts", "v")


@pytest.mark.parametrize("text", [b"<html>", b"\xff", b"[" * 5000, b"[NaN]"])
def test_what_is_not_json_as_we_take_it_cannot_be_read(text: bytes) -> None:
    with answering(200, text) as (url, _), pytest.raises(ManagementUnreadable, match="RabbitMQ's management API"):
        ManagementClient(url, "u", "p").call("GET", "whoami")


def test_an_address_where_nothing_listens_is_an_error_of_the_system_that_names_it() -> None:
    url = f"http://127.0.0.1:{closed_port()}"

    with pytest.raises(ManagementAway, match=f"no management API at {url}: .*Connection refused") as caught:
        ManagementClient(url, "u", "p").call("GET", "whoami")

    assert isinstance(caught.value, OSError)
