"""RelayClient, AsyncRelayClient and RelayWorker over real nodes: answers, typed errors, other nodes, TLS."""

from __future__ import annotations

import asyncio
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from osrdyne_protocol.errors import SettingsError
from osrdyne_relay import CallFailed, CallTimedOut, InvalidCall, NotCollected, Relay, Request, Stage, TooLarge
from osrdyne_relay.client import AsyncRelayClient, RelayClient
from osrdyne_relay.errors import AccessDenied, CallRefused, NodeFailed, NodeLost, NodesAway
from osrdyne_relay.worker import RelayWorker
from osrdyne_worker import Reject, Requeue, WorkerError
from osrdyne_worker import Request as Given
from testbed.authority import Authority
from testbed.redis import RedisServer
from testbed.waiting import PATIENCE_SECONDS, until_async
from tests.relay.http_nodes import GRANTS, TOKENS, InThread, Node, Raw, http_settings, noded, raw, working
from tests.relay.nodes import serving, settings

CALLER = TOKENS["caller"]


@pytest.fixture(params=[True, False], ids=["websocket", "long poll"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the workers of a test get their requests in both ways."""
    monkeypatch.setattr("tests.relay.http_nodes.WEBSOCKET", request.param)


def upper(request: Given) -> bytes:
    """A handler as a worker over AMQP has it."""
    match request.body:
        case b"reject":
            raise Reject("not this one")
        case b"error":
            raise WorkerError(b"details", "no data")
        case b"requeue":
            raise Requeue
        case b"raise":
            raise LookupError("no such map")
    return request.key.encode() + b": " + request.body.upper()


@pytest.mark.usefixtures("way")
async def test_a_caller_at_one_node_reaches_a_worker_at_another(redis: RedisServer, tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    async with (
        noded(redis, tmp_path) as a,
        noded(redis, tmp_path / "b") as b,
        working(b, "maps/LAX", upper),
        AsyncRelayClient(a, token=CALLER) as client,
    ):
        response = await client.call("maps/LAX", b"question", timeout=30)

        def from_a_thread() -> bytes:
            with RelayClient(a, token=CALLER) as threads:
                return threads.call("maps/LAX", Request(b"again", headers={"x-who": "ä"}), timeout=30).body

        again = await asyncio.to_thread(from_a_thread)
    assert (response.body, again) == (b"LAX: QUESTION", b"LAX: AGAIN")


async def test_no_call_is_lost_of_many_that_a_client_begins_at_once(redis: RedisServer, tmp_path: Path) -> None:
    grants = {**GRANTS, "worker": {"serve": ["e"], "most": 500}, "caller": {"call": ["e"], "most": 500}}
    async with (
        noded(redis, tmp_path, grants=grants) as url,
        working(url, "e", upper),
        AsyncRelayClient(url, token=CALLER) as client,
    ):
        within = {"timeout": PATIENCE_SECONDS, "pickup_timeout": PATIENCE_SECONDS}
        calls = [client.call("e", b"%d" % number, **within) for number in range(500)]
        answers = await asyncio.gather(*calls)
    assert [answer.body for answer in answers] == [b"e: %d" % number for number in range(500)]


@pytest.mark.usefixtures("way")
async def test_what_a_handler_raises_reaches_the_caller(redis: RedisServer, tmp_path: Path) -> None:
    async with (
        noded(redis, tmp_path) as url,
        working(url, "e", upper),
        AsyncRelayClient(url, token=CALLER) as client,
    ):
        with pytest.raises(CallRefused, match="not this one") as rejected:
            await client.call("e", b"reject")
        with pytest.raises(CallRefused) as failed:
            await client.call("e", b"error")
        with pytest.raises(CallRefused, match="exception") as raised:
            await client.call("e", b"raise")
        with pytest.raises(CallFailed, match="call again"):
            await client.call("e", b"requeue")
    assert (rejected.value.status, rejected.value.reason) == ("rejected", "not this one")
    assert (failed.value.status, failed.value.reason, failed.value.body) == ("error", "no data", b"details")
    assert raised.value.body == b"LookupError: no such map"
    assert str(raised.value) == "the worker answered 'error': the handler raised an exception: LookupError: no such map"
    assert str(failed.value) == "the worker answered 'error': no data: details"


@pytest.mark.usefixtures("way")
async def test_an_async_handler_runs_on_the_loop_and_is_cancelled_with_its_request(
    redis: RedisServer, tmp_path: Path
) -> None:
    begun, cancelled = asyncio.Event(), asyncio.Event()

    async def forever(request: Given) -> bytes:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return b""

    async with (
        noded(redis, tmp_path) as url,
        working(url, "e", forever),
        AsyncRelayClient(url, token=CALLER) as client,
    ):
        call = asyncio.create_task(client.call("e", b"x"))
        await begun.wait()
        call.cancel()
        await cancelled.wait()


@pytest.mark.usefixtures("way")
async def test_a_worker_has_as_many_requests_of_an_endpoint_as_it_said(redis: RedisServer, tmp_path: Path) -> None:
    all_here = asyncio.Barrier(4)

    async def meet(request: Given) -> bytes:
        await all_here.wait()
        return b"met"

    async with (
        noded(redis, tmp_path) as url,
        working(url, ["e", "maps/LAX"], meet, at_once=2),
        AsyncRelayClient(url, token=CALLER) as client,
    ):
        calls = [client.call(endpoint, b"x") for endpoint in ("e", "e", "maps/LAX", "maps/LAX")]
        assert [answer.body for answer in await asyncio.gather(*calls)] == [b"met"] * 4


async def test_typed_errors_come_over_http(redis: RedisServer, tmp_path: Path) -> None:
    async with noded(redis, tmp_path) as url, AsyncRelayClient(url, token=CALLER) as client:
        with pytest.raises(NotCollected):
            await client.call("e", b"x", pickup_timeout=0.1)
        with pytest.raises(CallTimedOut, match=r"0\.1 s") as late:
            await client.call("e", b"x", timeout=0.1)
        assert late.value.stage == Stage.NEVER_COLLECTED
        with pytest.raises(TooLarge):
            await client.call("e", bytes(1_048_576), timeout=1)
        with pytest.raises(TooLarge):
            await client.call("e", bytes(3_000_000))
        with pytest.raises(InvalidCall):
            await client.call("", b"x")
        with pytest.raises(AccessDenied):
            await client.call("other", b"x")


def test_the_client_of_threads_raises_the_same_errors(redis: RedisServer, tmp_path: Path) -> None:
    with InThread(http_settings(redis, tmp_path)) as node:
        with RelayClient(node.url, token=CALLER) as client:
            with pytest.raises(NotCollected):
                client.call("e", b"x", pickup_timeout=0.1)
            with pytest.raises(CallTimedOut):
                client.call("e", b"x", timeout=0.1)
            with pytest.raises(AccessDenied):
                client.call("other", b"x")
        with RelayClient([f"http://127.0.0.1:{free_port()}", node.url], token=CALLER) as client:
            for _ in range(3):
                with pytest.raises(NotCollected):
                    client.call("e", b"x", pickup_timeout=0.1)
        with RelayClient(f"http://127.0.0.1:{free_port()}", token=CALLER) as client, pytest.raises(NodesAway):
            client.call("e", b"x")


def free_port() -> int:
    """A port at which nothing listens."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@pytest.mark.usefixtures("way")
async def test_a_node_that_is_away_or_stops_is_passed_over(redis: RedisServer, tmp_path: Path) -> None:
    stopping = Node(http_settings(redis, tmp_path))
    near = await stopping.url()
    (tmp_path / "b").mkdir()
    away = f"http://127.0.0.1:{free_port()}"
    async with noded(redis, tmp_path / "b") as far, raw(near) as http, Relay(settings(redis)) as core:
        # In its hand: so it stops, and does not end.
        waits = core.start("e", b"first")
        request, _ = await http.poll("worker", "e")
        stopping.stop()
        await until_async(lambda: _stops(http))
        async with (
            working([away, near, far], "e", upper),
            AsyncRelayClient([away, near, far], token=CALLER) as client,
        ):
            for _ in range(3):
                assert (await client.call("e", b"x", timeout=60)).body == b"e: X"
        await http.ask("worker", "POST", f"/v1/requests/{request}/response", b"y")
        assert (await waits.response()).body == b"y"
    await stopping.task
    async with AsyncRelayClient(away, token=CALLER) as client:
        with pytest.raises(NodesAway):
            await client.call("e", b"x")


async def _stops(http: Raw) -> bool:
    return (await http.ask(None, "GET", "/readyz"))[0] == 503


async def test_a_node_that_is_lost_during_a_call_is_an_error_and_no_second_call(tmp_path: Path) -> None:
    asked = 0

    async def lose(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        await reader.readuntil(b"\r\n\r\n")
        asked += 1
        writer.close()

    server = await asyncio.start_server(lose, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server, AsyncRelayClient([url, url], token=CALLER) as client:
        with pytest.raises(NodeLost):
            await client.call("e", b"x")
        with RelayClient([url, url], token=CALLER) as threads, pytest.raises(NodeLost):
            await asyncio.to_thread(threads.call, "e", b"x")
    assert asked == 2


async def test_an_address_that_is_not_a_node_is_an_error(tmp_path: Path) -> None:
    async def other(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 5\r\n\r\nhello")
        writer.close()

    server = await asyncio.start_server(other, "127.0.0.1", 0)
    async with (
        server,
        AsyncRelayClient(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", token=CALLER) as client,
    ):
        with pytest.raises(NodeFailed, match="404"):
            await client.call("e", b"x")


@pytest.mark.usefixtures("way")
async def test_a_worker_that_stops_finishes_what_it_has(redis: RedisServer, tmp_path: Path) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slow(request: Given) -> bytes:
        begun.set()
        go_on.wait()
        return b"done"

    async with noded(redis, tmp_path) as url, AsyncRelayClient(url, token=CALLER) as client:
        async with working(url, "e", slow):
            call = asyncio.create_task(client.call("e", b"x"))
            await asyncio.to_thread(begun.wait)
            asyncio.get_running_loop().call_later(0.2, go_on.set)
        assert (await call).body == b"done"


@pytest.mark.usefixtures("way")
async def test_a_worker_that_stops_before_its_work_is_done_says_so(redis: RedisServer, tmp_path: Path) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slow(request: Given) -> bytes:
        begun.set()
        go_on.wait()
        return b"done"

    async with noded(redis, tmp_path) as url, AsyncRelayClient(url, token=CALLER) as client:
        async with working(url, "e", slow, grace=0.1):
            call = asyncio.create_task(client.call("e", b"x"))
            await asyncio.to_thread(begun.wait)
        with pytest.raises(CallFailed, match="the worker stopped"):
            await call
    go_on.set()


@pytest.mark.usefixtures("way")
async def test_a_worker_that_stops_takes_no_request_along(redis: RedisServer, tmp_path: Path) -> None:
    async with noded(redis, tmp_path) as url, AsyncRelayClient(url, token=CALLER) as client:
        calls = [asyncio.create_task(client.call("e", b"%d" % number)) for number in range(30)]
        while not all(call.done() for call in calls):
            async with working(url, "e", upper):
                await asyncio.sleep(0.02)
        answers = [(await call).body for call in calls]
    assert answers == [b"e: %d" % number for number in range(30)]


@pytest.mark.usefixtures("way")
async def test_a_worker_goes_on_when_its_node_was_away(redis: RedisServer, tmp_path: Path) -> None:
    port = free_port()
    (tmp_path / "b").mkdir()
    own = {"port": port}
    async with (
        noded(redis, tmp_path / "b") as other,
        AsyncRelayClient(other, token=CALLER) as client,
        working(f"http://127.0.0.1:{port}", "e", upper),
    ):
        for _ in range(2):
            async with noded(redis, tmp_path, serve=own):
                assert (await client.call("e", b"x", timeout=60)).body == b"e: X"


@pytest.mark.usefixtures("way")
async def test_a_token_is_read_again_and_may_be_away_for_a_while(redis: RedisServer, tmp_path: Path) -> None:
    file, own = tmp_path / "worker.token", tmp_path / "caller.token"
    own.write_text(CALLER)
    async with (
        noded(redis, tmp_path) as url,
        working(url, "e", upper, token=None, token_file=file),
        AsyncRelayClient(url, token_file=own) as client,
    ):
        file.write_text("a-token-that-is-unknown")
        file.write_text(TOKENS["worker"])
        assert (await client.call("e", b"x", timeout=60)).body == b"e: X"
        own.unlink()
        with pytest.raises(NodesAway, match=r"caller\.token"):
            await client.call("e", b"x")
        with RelayClient(url, token_file=own) as threads, pytest.raises(NodesAway, match=r"caller\.token"):
            threads.call("e", b"x")


@pytest.mark.usefixtures("way")
async def test_certificates_name_workers_and_callers(redis: RedisServer, tmp_path: Path) -> None:
    ours, strange = Authority(tmp_path / "ours"), Authority(tmp_path / "strange")
    server = ours.issue("server", addresses=["127.0.0.1"])
    tls = {
        "certificate_file": str(server.certfile),
        "key_file": str(server.keyfile),
        "client_ca_file": str(ours.cacertfile),
    }
    grants = {
        "a-worker": {"certificates": ["lax.example"], "serve": ["maps/LAX"]},
        "a-caller": {"certificates": ["web.example"], "call": ["maps/*"]},
    }
    trusts: dict[str, Any] = {"ca_file": ours.cacertfile}

    def shows(authority: Authority, name: str) -> dict[str, Any]:
        made = authority.issue(name)
        return {"certificate_file": made.certfile, "key_file": made.keyfile, **trusts}

    async with noded(redis, tmp_path, grants=grants, serve=tls) as url:
        assert url.startswith("https://")
        async with (
            working(url, "maps/LAX", upper, token=None, **shows(ours, "lax.example")),
            AsyncRelayClient(url, **shows(ours, "web.example")) as client,
        ):
            assert (await client.call("maps/LAX", b"x", timeout=60)).body == b"LAX: X"
            with RelayClient(url, **shows(ours, "web.example")) as threads:
                answer = await asyncio.to_thread(threads.call, "maps/LAX", b"y", timeout=60)
            assert answer.body == b"LAX: Y"
        async with AsyncRelayClient(url, **shows(ours, "unknown.example")) as client:
            with pytest.raises(AccessDenied):
                await client.call("maps/LAX", b"x")
        async with AsyncRelayClient(url, **trusts) as client:
            with pytest.raises(AccessDenied):
                await client.call("maps/LAX", b"x")
        # A certificate of another authority: TLS itself refuses it.
        async with AsyncRelayClient(url, **shows(strange, "web.example")) as client:
            with pytest.raises((NodeLost, NodesAway)):
                await client.call("maps/LAX", b"x")
        async with AsyncRelayClient(url, ca_file=strange.cacertfile) as client:
            with pytest.raises(NodesAway, match=f"{strange.cacertfile} must hold that CA's certificate"):
                await client.call("maps/LAX", b"x")
        with RelayClient(url) as threads, pytest.raises(NodesAway, match="name the file of a private CA by ca_file"):
            await asyncio.to_thread(threads.call, "maps/LAX", b"x")


@pytest.mark.usefixtures("way")
async def test_a_changed_certificate_of_a_client_counts_at_its_next_request(redis: RedisServer, tmp_path: Path) -> None:
    ours, strange = Authority(tmp_path / "ours"), Authority(tmp_path / "strange")
    server = ours.issue("server", addresses=["127.0.0.1"])
    tls = {
        "certificate_file": str(server.certfile),
        "key_file": str(server.keyfile),
        "client_ca_file": str(ours.cacertfile),
    }
    grants = {
        "a-worker": {"certificates": ["lax.example"], "serve": ["maps/LAX"]},
        "a-caller": {"certificates": ["web.example"], "call": ["maps/*"]},
    }
    shown: dict[str, Any] = {"certificate_file": tmp_path / "shown.pem", "key_file": tmp_path / "shown.key"}
    trusts: dict[str, Any] = {"ca_file": tmp_path / "ca.pem"}

    def show(authority: Authority, name: str, trusted: Authority = ours) -> None:
        made = authority.issue(name)
        shown["certificate_file"].write_bytes(Path(made.certfile).read_bytes())
        shown["key_file"].write_bytes(Path(made.keyfile).read_bytes())
        trusts["ca_file"].write_bytes(Path(trusted.cacertfile).read_bytes())

    show(ours, "unknown.example")
    worker = ours.issue("lax.example")
    async with (
        noded(redis, tmp_path, grants=grants, serve=tls) as url,
        working(
            *(url, "maps/LAX", upper),
            token=None,
            ca_file=ours.cacertfile,
            certificate_file=worker.certfile,
            key_file=worker.keyfile,
        ),
        AsyncRelayClient(url, **shown, **trusts) as client,
    ):
        with RelayClient(url, **shown, **trusts) as threads:

            async def both() -> list[Any]:
                return list(
                    await asyncio.gather(
                        client.call("maps/LAX", b"x", timeout=60),
                        asyncio.to_thread(threads.call, "maps/LAX", b"x", timeout=60),
                        return_exceptions=True,
                    )
                )

            assert {type(answer) for answer in await both()} == {AccessDenied}
            show(ours, "web.example")
            assert [answer.body for answer in await both()] == [b"LAX: X"] * 2
            show(ours, "web.example", trusted=strange)
            assert {type(answer) for answer in await both()} == {NodesAway}
            # A file that is half written changes nothing, and a whole one does.
            trusts["ca_file"].write_text("nonsense")
            assert {type(answer) for answer in await both()} == {NodesAway}
            show(ours, "web.example")
            assert [answer.body for answer in await both()] == [b"LAX: X"] * 2


def test_settings_of_a_client_that_cannot_work_are_refused(tmp_path: Path) -> None:
    none: list[str] = []
    for urls in (none, "node:8044", "amqp://node", "https://user:password@node"):
        with pytest.raises(SettingsError):
            RelayClient(urls)
    for endpoints, at_once in ((none, 1), (["e"], 0), ([""], 1)):
        with pytest.raises(InvalidCall):
            RelayWorker("https://node", endpoints, upper, at_once=at_once)
    with pytest.raises(SettingsError, match="blanks"):
        RelayClient("https://node", token="a b")
    with pytest.raises(SettingsError, match="twice"):
        RelayClient("https://node", token="a", token_file=tmp_path)
    with pytest.raises(SettingsError, match="ca_file"):
        RelayClient("https://node", ca_file=tmp_path / "none")


@pytest.mark.usefixtures("way")
async def test_a_worker_of_the_core_and_one_over_http_serve_side_by_side(redis: RedisServer, tmp_path: Path) -> None:
    async with (
        noded(redis, tmp_path) as url,
        Relay(settings(redis)) as core,
        working(url, "e", upper),
        AsyncRelayClient(url, token=CALLER) as client,
        serving(core, "e"),
    ):
        answers = await asyncio.gather(*(client.call("e", b"x%d" % number) for number in range(50)))
    assert {answer.body.removeprefix(b"e: ") for answer in answers} == {b"X%d" % number for number in range(50)}


@pytest.mark.parametrize("made", [RelayClient, AsyncRelayClient])
def test_a_mistyped_argument_of_a_client_is_named_with_those_there_are(made: Any) -> None:
    with pytest.raises(TypeError, match="'tokenfile'; there are token, token_file"):
        made("http://localhost:1", tokenfile="x")
