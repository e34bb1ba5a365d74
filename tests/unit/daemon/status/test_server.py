"""The status endpoints: what they answer, and that metrics are counted when they are asked for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import closing
from functools import partial
from typing import Any

import aiohttp
import pytest

from osrdyne.metrics import Metrics
from osrdyne.settings.daemon import StatusSettings
from osrdyne.status import server as status_server
from osrdyne_runtime.door import Door
from testbed import odd_headers
from testbed.waiting import PATIENCE_SECONDS


class ServedDocument:
    """A server whose document and readiness a test changes."""

    def __init__(self) -> None:
        self.document: dict[str, Any] = {
            "keys": [],
            "alarm": None,
            "queues": {},
            "static_queues_lost": {},
            "queues_with_other_consumers": [],
        }
        self.reason: str | None = None
        self.url = ""
        self.port = 0

    async def get(self, path: str) -> tuple[int, str]:
        async with aiohttp.ClientSession() as session, session.get(self.url + path) as answer:
            return answer.status, await answer.text()


@pytest.fixture
async def served(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ServedDocument]:
    one = ServedDocument()
    settings = StatusSettings(port=0, names=("osrdyne.example",))
    monkeypatch.setattr(status_server, "Door", partial(Door, patience=1.0))
    async with status_server.serve(
        settings, Metrics(), document=lambda: one.document, not_ready=lambda: one.reason
    ) as port:
        one.port = port
        one.url = f"http://127.0.0.1:{port}"
        yield one


async def test_odd_bytes_in_headers_are_not_an_error_of_the_server(served: ServedDocument) -> None:
    found = {
        await odd_headers.status(served.port, "GET", path, lines)
        for path in ("/status", "/healthz", "/%ff%00?x=%ff")
        for lines in odd_headers.headers()
    }
    assert {200, 403} <= found
    assert max(found) < 500


async def test_readiness_is_reported_with_its_reason(served: ServedDocument) -> None:
    assert await served.get("/readyz") == (200, "ready\n")
    served.reason = "waiting: no broker"
    assert await served.get("/readyz") == (503, "waiting: no broker\n")
    assert await served.get("/healthz") == (200, "ok\n")


@pytest.mark.parametrize("path", ["/status", "/metrics", "/readyz", "/healthz", "/nothing"])
async def test_a_page_of_another_site_that_means_this_address_by_its_name_reads_nothing(
    served: ServedDocument, path: str
) -> None:
    async with aiohttp.ClientSession() as session:
        async with session.get(served.url + path, headers={"Host": "evil.example:8042"}) as answer:
            assert (answer.status, "status.names" in await answer.text()) == (403, True)
        async with session.get(served.url + "/status", headers={"Host": "osrdyne.example"}) as answer:
            assert answer.status == 200


async def test_half_a_request_is_not_kept(served: ServedDocument) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    with closing(writer):
        writer.write(b"GET /status HTTP/1.1\r\nHost:")
        assert await asyncio.wait_for(reader.read(), PATIENCE_SECONDS) == b""
    assert (await served.get("/healthz"))[0] == 200


async def test_metrics_count_the_keys_of_each_state_as_they_are_when_asked(served: ServedDocument) -> None:
    served.document["keys"] = [{"state": "ready"}, {"state": "ready"}, {"state": "failed"}]
    assert 'osrdyne_keys{state="ready"} 2.0' in (await served.get("/metrics"))[1]
    served.document["keys"] = [{"state": "ready"}]
    _, text = await served.get("/metrics")
    assert 'osrdyne_keys{state="ready"} 1.0' in text
    assert 'osrdyne_keys{state="failed"} 0.0' in text


async def test_nothing_can_be_changed(served: ServedDocument) -> None:
    async with aiohttp.ClientSession() as session:
        for path in ("/healthz", "/readyz", "/metrics", "/status"):
            async with session.post(served.url + path) as answer:
                assert answer.status == 405


async def test_metrics_show_an_alarm_and_the_queues_that_can_be_seen(served: ServedDocument) -> None:
    served.document |= {"alarm": "memory", "queues": {"core-orphan": 3, "core-dl": 0}}
    _, text = await served.get("/metrics")
    assert "osrdyne_broker_alarm 1.0" in text
    assert 'osrdyne_queue_messages{queue="core-orphan"} 3.0' in text
    assert 'osrdyne_queue_messages{queue="core-dl"} 0.0' in text
    served.document |= {"alarm": None, "queues": {"core-orphan": None, "core-dl": 0}}
    _, text = await served.get("/metrics")
    assert "osrdyne_broker_alarm 0.0" in text
    assert "core-orphan" not in text


async def test_metrics_show_each_static_queue_that_is_lost_while_it_is(served: ServedDocument) -> None:
    served.document |= {"static_queues_lost": {"core-orphan": "what to do"}}
    _, text = await served.get("/metrics")
    assert 'osrdyne_static_queues_lost{queue="core-orphan"} 1.0' in text
    served.document |= {"static_queues_lost": {}}
    _, text = await served.get("/metrics")
    assert "osrdyne_static_queues_lost{" not in text
