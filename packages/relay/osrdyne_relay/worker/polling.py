"""Gets requests by long polls: one poll for each request that a worker may have at once."""

from __future__ import annotations

import asyncio
from urllib.parse import quote

from osrdyne_relay import wire
from osrdyne_relay.client.asynchronous import Session
from osrdyne_relay.errors import NodeFailed, NodeLost, NodesAway, RelayError
from osrdyne_relay.redis.names import is_id, new_id
from osrdyne_relay.worker.request_runner import ReceivedRequest, RequestRunner
from osrdyne_runtime import log_lines
from osrdyne_runtime.outages import OutageLog
from osrdyne_runtime.retry import Retry

log = log_lines.logger(__name__)

#: Seconds of one poll, and for its answer to arrive beyond that: the node may have to wait for Redis.
_POLL_SECONDS, _ANSWER_SECONDS = 30.0, 60.0
#: Seconds of the first poll after one that failed: its answer shows soon that the node is back.
_FIRST_POLL_SECONDS = 1.0
#: Seconds for a poll to end when the worker stops.
_END_SECONDS = 5.0
#: First and longest pause before another node is tried, in seconds.
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.2, 10.0


class EndpointPoller:
    """Polls one endpoint."""

    def __init__(self, session: Session, requests: RequestRunner, endpoint: str) -> None:
        self._session, self._requests, self._endpoint = session, requests, endpoint

    async def run(self, stop: asyncio.Event) -> None:
        """Poll and do requests, one after the other, until `stop` is set."""
        clock = asyncio.get_running_loop().time
        retry = Retry(first=FIRST_PAUSE_SECONDS, limit=LONGEST_PAUSE_SECONDS)
        outage = OutageLog(log, "the relay", tolerated=1)
        while not stop.is_set():
            nodes = self._session.nodes
            url = nodes.order()[retry.failures % len(nodes.urls)]
            try:
                received = await self._poll(url, stop, _FIRST_POLL_SECONDS if retry.failures else _POLL_SECONDS)
            except RelayError as error:
                outage.failed(str(error), clock(), node=url)
                await pause(stop, retry.failed())
                continue
            if retry.failures:
                nodes.worked(url)
            retry.worked()
            outage.over(clock())
            if received is not None:
                await self._requests.run(received)

    async def _poll(self, url: str, stop: asyncio.Event, wait: float) -> ReceivedRequest | None:
        """Return a request, or None. At a stop the node ends the poll, so that no request is lost on its way."""
        poll = new_id()
        path = f"{wire.path(wire.POLL, self._endpoint, wait=wait)}&poll={poll}"
        asked = asyncio.create_task(self._session.ask("POST", url + path, within=_POLL_SECONDS + _ANSWER_SECONDS))
        stopped = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait([asked, stopped], return_when=asyncio.FIRST_COMPLETED)
            if not asked.done():
                await self._end(url, poll)
                await asyncio.wait([asked], timeout=_END_SECONDS)
        finally:
            stopped.cancel()
            if not asked.done():
                asked.cancel()
            await asyncio.gather(stopped, asked, return_exceptions=True)
        if asked.cancelled():
            return None
        return self._received(url, *asked.result())

    async def _end(self, url: str, poll: str) -> None:
        try:
            await self._session.ask("DELETE", f"{url}{wire.POLL}?poll={quote(poll)}", within=_END_SECONDS)
        except (NodesAway, NodeLost) as error:
            log.info("a poll cannot be ended", extra={"node": url, "reason": str(error)})

    def _received(self, url: str, status: int, headers: dict[str, str], body: bytes) -> ReceivedRequest | None:
        if status == 204:
            return None
        if status != 200:
            raise wire.error_of(status, body)
        request = headers.get(wire.ID_HEADER, "")
        if not is_id(request):
            raise NodeFailed("the answer to a poll names no request: check that the address is that of a node")
        shown = wire.load_headers(headers.get(wire.HEADERS_HEADER))
        streams = wire.load_streams(headers.get(wire.STREAMS_HEADER))
        return ReceivedRequest(url, request, self._endpoint, shown, body, streams)


async def pause(stop: asyncio.Event, seconds: float) -> None:
    """Wait for some seconds, or less when the stop comes first."""
    try:
        async with asyncio.timeout(seconds):
            await stop.wait()
    except TimeoutError:
        pass
