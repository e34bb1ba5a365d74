"""Access over HTTP: a token is good for what its client may do, strangers learn nothing, each client has a bound."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest

from osrdyne_protocol.errors import SettingsError
from osrdyne_relay import Relay, RelaySettings
from osrdyne_relay.errors import AccessDenied
from osrdyne_relay.http import serve
from osrdyne_relay.http.access import Access, Grant, KnownClient, names_of, sha256_of
from testbed import odd_headers
from testbed.redis import RedisServer
from testbed.waiting import until_async
from tests.relay.http_nodes import GRANTS, TOKENS, Raw, code_of, http_settings, noded, raw, write_access
from tests.relay.nodes import settings

REQUEST = "0" * 32
#: Every path that a node serves, and some that it does not.
PATHS = [
    ("POST", "/v1/call?endpoint=e"),
    ("POST", "/v1/poll?endpoint=e&wait=0"),
    ("DELETE", f"/v1/poll?poll={REQUEST}"),
    ("GET", "/v1/socket"),
    ("POST", f"/v1/requests/{REQUEST}/response"),
    ("POST", f"/v1/requests/{REQUEST}/failure"),
    ("POST", f"/v1/requests/{REQUEST}/return"),
    ("GET", f"/v1/requests/{REQUEST}/news?wait=0"),
    *((method, f"/v1/streams/{REQUEST}") for method in ("PUT", "GET", "DELETE")),
    ("GET", "/metrics"),
    ("GET", "/"),
    ("PUT", "/v1/call?endpoint=e"),
    ("POST", "/v2/call"),
]


async def test_odd_bytes_in_headers_and_queries_are_not_an_error_of_the_node(
    redis: RedisServer, tmp_path: Path
) -> None:
    async with noded(redis, tmp_path) as url:
        port, found = int(url.rpartition(":")[2]), set()
        for who, method, path in (
            ("caller", "POST", "/v1/call?endpoint=none"),
            ("worker", "POST", "/v1/poll?endpoint=e%ff%00&wait=0&poll=%ff"),
            ("worker", "POST", f"/v1/requests/{REQUEST}/response"),
            ("worker", "PUT", f"/v1/streams/{REQUEST}"),
            ("worker", "GET", "/v1/socket"),
        ):
            for lines in odd_headers.headers(authorization=f"Bearer {TOKENS[who]}"):
                found.add(await odd_headers.status(port, method, path, lines))
    assert {400, 401} <= found
    assert max(found) < 500


async def test_a_stranger_gets_the_same_answer_whatever_it_asks_for(redis: RedisServer, tmp_path: Path) -> None:
    async with noded(redis, tmp_path) as url, raw(url) as http, Relay(settings(redis)) as near:
        call = near.start("e", b"secret")
        request, _ = await http.poll("worker", "e")
        paths = [*PATHS, *((method, path.replace(REQUEST, request)) for method, path in PATHS)]
        answers = set()
        for who in (None, "a-wrong-token-of-sixteen", TOKENS["worker"][:-1], "", "ключ", "x" * 5000):
            for method, path in paths:
                status, headers, body = await http.ask(who, method, path)
                left = {name: value for name, value in headers.items() if name != "Date"}
                answers.add((status, json.dumps(left), body))
        assert len(answers) == 1
        assert next(iter(answers))[0] == 401
        # A name without a token, and a token of another scheme.
        async with http.session.get(f"{url}/metrics", headers={"Authorization": TOKENS["monitor"]}) as answer:
            assert answer.status == 401
        await http.ask("worker", "POST", f"/v1/requests/{request}/response", b"y")
        assert (await call.response()).body == b"y"


async def test_a_token_is_good_for_what_its_client_may_do_and_for_nothing_else(
    redis: RedisServer, tmp_path: Path
) -> None:
    expected = {
        ("worker", "POST", "/v1/poll?endpoint=maps%2FLAX&wait=0"): 204,
        ("worker", "POST", "/v1/poll?endpoint=maps&wait=0"): 401,
        ("worker", "POST", "/v1/poll?endpoint=E&wait=0"): 401,
        ("worker", "POST", "/v1/call?endpoint=maps%2FLAX"): 401,
        ("worker", "GET", "/metrics"): 401,
        ("other", "POST", "/v1/poll?endpoint=e&wait=0"): 401,
        ("other", "POST", "/v1/call?endpoint=e"): 401,
        ("caller", "POST", "/v1/poll?endpoint=e&wait=0"): 401,
        ("caller", "POST", "/v1/call?endpoint=e&pickup_timeout=0.1"): 503,
        ("monitor", "GET", "/metrics"): 200,
        ("monitor", "POST", "/v1/call?endpoint=e"): 401,
    }
    async with noded(redis, tmp_path) as url, raw(url) as http:
        assert {asked: (await http.ask(*asked))[0] for asked in expected} == expected


async def test_a_worker_cannot_touch_the_request_of_another_or_learn_that_it_exists(
    redis: RedisServer, tmp_path: Path
) -> None:
    async with noded(redis, tmp_path) as url, raw(url) as http, Relay(settings(redis)) as near:
        call = near.start("e", b"x")
        request, _ = await http.poll("worker", "e")
        for method, what in (("POST", "response"), ("POST", "failure"), ("POST", "return"), ("GET", "news")):
            said = [await http.ask("other", method, f"/v1/requests/{number}/{what}") for number in (request, REQUEST)]
            assert [(status, body) for status, _, body in said] == [(404, said[0][2])] * 2
        await http.ask("worker", "POST", f"/v1/requests/{request}/response", b"y")
        assert (await call.response()).body == b"y"


async def test_pages_of_browsers_are_refused(redis: RedisServer, tmp_path: Path) -> None:
    async with noded(redis, tmp_path) as url, raw(url) as http:
        status, _, _ = await http.ask("worker", "POST", "/v1/poll?endpoint=e&wait=0", Origin="https://evil.example")

    assert status == 401


async def test_a_client_has_no_more_open_than_it_may(redis: RedisServer, tmp_path: Path) -> None:
    grants = {**GRANTS, "worker": {"serve": ["maps/*", "e"], "most": 2}}
    async with noded(redis, tmp_path, grants=grants) as url, raw(url) as http, Relay(settings(redis)) as near:
        # Requests in hand count.
        calls = [near.start("e", b"x") for _ in range(2)]
        requests = [(await http.poll("worker", "e"))[0] for _ in calls]
        status, _, body = await http.ask("worker", "POST", "/v1/poll?endpoint=e&wait=0")
        assert (status, code_of(body)) == (429, "TooMany")
        for request in requests:
            await http.ask("worker", "POST", f"/v1/requests/{request}/response", b"y")
        await asyncio.gather(*(call.response() for call in calls))
        # Endpoints count.
        assert (await http.ask("worker", "POST", "/v1/poll?endpoint=maps%2Fa&wait=0"))[0] == 204
        assert (await http.ask("worker", "POST", "/v1/poll?endpoint=maps%2Fb&wait=0"))[0] == 429
        # Another client has a bound of its own.
        assert (await http.ask("other", "POST", "/v1/poll?endpoint=other&wait=0"))[0] == 204


async def test_a_changed_access_file_counts_at_once_and_one_with_a_mistake_is_not_used(
    redis: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("osrdyne_relay.http.access.FILE_CHECK_SECONDS", 0.02)
    file = tmp_path / "access.toml"
    async with noded(redis, tmp_path) as url, raw(url) as http:

        async def status() -> int:
            return (await http.ask("other", "POST", "/v1/poll?endpoint=e&wait=0"))[0]

        assert await status() == 401
        write_access(file, {"other": {"serve": ["e"]}, "monitor": {"metrics": True}})
        await until_async(lambda: _gives(status(), 204))
        os.truncate(file, 20)  # in the middle of an entry
        for _ in range(5):
            await asyncio.sleep(0.02)
            assert await status() == 204
        # A poll that waits ends, too.
        poll = asyncio.create_task(http.ask("other", "POST", "/v1/poll?endpoint=e&wait=60"))
        await until_async(lambda: _polls(http))
        write_access(file, {"worker": {"serve": ["e"]}})
        assert (await poll)[0] == 204
        assert await status() == 401


async def _polls(http: Raw) -> bool:
    return b"osrdyne_relay_polls 1.0\n" in (await http.ask("monitor", "GET", "/metrics"))[2]


async def _gives(status: Awaitable[int], wanted: int) -> bool:
    return await status == wanted


@pytest.mark.parametrize(
    "text, words",
    [
        ("clients = 1", "clients"),
        ("[clients.a]\nserves = ['e']", "serves"),
        ("[clients.a]\nserve = ['a*b']", "last character"),
        ("[clients.a]\ntoken_sha256 = 'secret'", "token_sha256"),
        (f"[clients.a]\ntoken_sha256 = '{'0' * 64}'\n[clients.b]\ntoken_sha256 = '{'0' * 64}'", "another client"),
        ("[clients.a]\ncertificates = ['x']\n[clients.b]\ncertificates = ['x']", "another client"),
        ("[[", "access file"),
    ],
)
def test_a_mistake_in_an_access_file_is_refused_by_name(text: str, words: str, tmp_path: Path) -> None:
    file = tmp_path / "access.toml"
    file.write_text(text)

    with pytest.raises(SettingsError, match=words):
        Access.read(file)


def test_a_pattern_is_one_endpoint_or_the_begin_of_several() -> None:
    client = KnownClient("a", Grant(serve=("maps/LAX", "core/*"), call=("*",)))
    for endpoint in ("maps/LAX", "core/", "core/a/b"):
        client.may_serve(endpoint)
    for endpoint in ("maps/LAX2", "maps", "core", "Core/a", "*"):
        with pytest.raises(AccessDenied):
            client.may_serve(endpoint)
    client.may_call("anything")


def test_a_certificate_counts_by_its_common_name_and_dns_names_alone() -> None:
    certificate = {
        "subject": ((("organizationName", "o"),), (("commonName", "cn"),)),
        "subjectAltName": (("DNS", "dns"), ("IP Address", "10.0.0.1"), ("email", "mail")),
    }
    assert names_of(certificate) == ["cn", "dns"]
    assert names_of(None) == []
    access = Access({"a": Grant(certificates=("dns",))})
    assert access.identify(None, certificate).name == "a"
    # A wrong token is not made good by a certificate.
    with pytest.raises(AccessDenied):
        access.identify("Bearer of-something-else-than-ours", certificate)


def test_a_short_token_is_not_a_token() -> None:
    with pytest.raises(AccessDenied):
        Access({"a": Grant(token_sha256=(sha256_of("short"),))}).identify("Bearer short", None)


async def test_a_node_does_not_start_for_other_machines_without_tls_or_with_wrong_settings(
    redis: RedisServer, tmp_path: Path
) -> None:
    def serving(**serve_settings: Any) -> RelaySettings:
        return http_settings(redis, tmp_path, serve=serve_settings)

    for wrong, words in (
        (serving(host="0.0.0.0"), "other machines"),
        (serving(access_file=str(tmp_path / "none")), "access_file"),
        (serving(certificate_file=str(tmp_path / "none")), "certificate_file"),
        (serving(host="192.0.2.1", plain_http=True), "cannot listen"),
        (settings(redis), "access_file"),
    ):
        with pytest.raises(SettingsError, match=words):
            await serve(wrong, asyncio.Event())
    for mistake in ({"key_file": "k"}, {"client_ca_file": "c"}, {"most": 0}, {"unknown": 1}):
        with pytest.raises(SettingsError, match="serve"):
            serving(**mistake)


async def test_health_is_open_and_says_whether_redis_is_there(
    private_redis: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("osrdyne_relay.http.node_service._REDIS_CHECK_SECONDS", 0.05)
    async with noded(private_redis, tmp_path) as url, raw(url) as http:
        await until_async(lambda: _gives(_status(http, "/readyz"), 200))
        private_redis.kill()
        await until_async(lambda: _gives(_status(http, "/readyz"), 503))
        assert await _status(http, "/livez") == 200
        private_redis.start()
        await until_async(lambda: _gives(_status(http, "/readyz"), 200))


async def _status(http: Raw, path: str) -> int:
    return (await http.ask(None, "GET", path))[0]


async def test_metrics_count_what_happened_and_name_no_client(redis: RedisServer, tmp_path: Path) -> None:
    async with noded(redis, tmp_path) as url, raw(url) as http:
        call = asyncio.create_task(http.ask("caller", "POST", "/v1/call?endpoint=maps%2FLAX", b"x"))
        request, _ = await http.poll("worker", "maps%2FLAX")
        during = (await http.ask("monitor", "GET", "/metrics"))[2].decode()
        await http.ask("worker", "POST", f"/v1/requests/{request}/response", b"y")
        await call
        after = (await http.ask("monitor", "GET", "/metrics"))[2].decode()

    assert {"osrdyne_relay_calls_open 1.0", "osrdyne_relay_requests_in_hand 1.0"} <= {*during.splitlines()}
    assert {
        'osrdyne_relay_calls_total{outcome="answered"} 1.0',
        'osrdyne_relay_requests_total{outcome="answered"} 1.0',
        "osrdyne_relay_requests_in_hand 0.0",
        "osrdyne_relay_endpoints 1.0",
    } <= {*after.splitlines()}
    assert "LAX" not in after
    assert [name for name in GRANTS if f'"{name}"' in after] == []
