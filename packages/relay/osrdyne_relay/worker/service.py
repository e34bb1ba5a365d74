"""A worker as a program of its own, and on a loop of the caller's."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Unpack, cast

from osrdyne_calls.handling import Handler
from osrdyne_calls.runners import runner_of
from osrdyne_relay.client.addresses import ClientIdentity, Nodes
from osrdyne_relay.client.asynchronous import Session
from osrdyne_relay.errors import InvalidCall
from osrdyne_relay.redis.names import check_endpoint
from osrdyne_relay.worker.polling import EndpointPoller
from osrdyne_relay.worker.request_runner import RequestRunner
from osrdyne_relay.worker.requests import AsyncRelayRequest, RelayRequest
from osrdyne_relay.worker.websocket import WebSocketReceiver
from osrdyne_runtime import program

#: Seconds after `grace` for the last answers to reach their nodes: work that is done would be lost otherwise.
LAST_ANSWERS_SECONDS = 5.0

#: A handler of the worker library, or one that uses data streams.
RelayHandler = Callable[[RelayRequest], bytes | None] | Callable[[AsyncRelayRequest], Awaitable[bytes | None]]


class RelayWorker:
    """Serves endpoints over nodes, with a handler of the worker library."""

    def __init__(
        self,
        urls: str | Sequence[str],
        endpoints: str | Sequence[str],
        handler: RelayHandler,
        *,
        at_once: int | None = None,
        threads: int = 1,
        executor: concurrent.futures.Executor | None = None,
        grace: float = 30.0,
        websocket: bool = True,
        **identity: Unpack[ClientIdentity],
    ) -> None:
        """`urls`: one node, or several that stand for each other: the worker goes to the next one when one is away.

        `handler`: a plain function runs in `threads` threads or in the `executor`; an `async def` runs on the loop.
        `at_once`: most requests of each endpoint at a time; without it, as many as there are threads.
        `grace`: seconds that work in hand may take after the stop. Its answers have `LAST_ANSWERS_SECONDS` more to
        reach their nodes. `websocket`: False for long polls, where a proxy lets no WebSocket pass.
        Raises SettingsError and InvalidCall.
        """
        self._nodes = Nodes(urls, **identity)
        self._endpoints = [
            check_endpoint(endpoint) for endpoint in ([endpoints] if isinstance(endpoints, str) else endpoints)
        ]
        if not self._endpoints or (at_once is not None and at_once < 1):
            raise InvalidCall("a worker serves one endpoint or more, and has one request or more at once")
        if not threads >= 0 or not grace >= 0:
            raise InvalidCall(f"threads={threads}, grace={grace}: give 0 or more threads and seconds")
        self._handler, self._threads, self._executor = handler, threads, executor
        self._at_once = max(1, threads) if at_once is None else at_once
        self._grace, self._websocket = grace, websocket

    def run(self) -> None:
        """Serve until SIGTERM or SIGINT, and return once work in hand is finished. A second signal ends the process.

        The process ends with EX_SOFTWARE (70) when it still runs `grace` seconds after its main thread is over.
        """
        program.run(self._until_signal(), "osrdyne relay worker", self._grace)

    async def serve(self, stop: asyncio.Event) -> None:
        """Do the same on the caller's loop, until `stop` is set. Nodes that are away are waited for."""
        # A handler of the worker library takes a request of ours, too.
        runner = runner_of(cast("Handler", self._handler), self._threads, self._executor)
        session = Session(self._nodes)
        requests = RequestRunner(session, runner)
        ways: list[WebSocketReceiver | EndpointPoller] = (
            [WebSocketReceiver(session, requests, self._endpoints, self._at_once)]
            if self._websocket
            else [
                EndpointPoller(session, requests, endpoint)
                for endpoint in self._endpoints
                for _ in range(self._at_once)
            ]
        )
        tasks = [asyncio.create_task(way.run(stop), name="relay worker") for way in ways]
        try:
            stopped = asyncio.create_task(stop.wait())
            # A task that fails is a mistake of ours: it must not go unseen.
            await asyncio.wait([stopped, *tasks], return_when=asyncio.FIRST_COMPLETED)
            stopped.cancel()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._grace):
                    await asyncio.gather(*(asyncio.shield(task) for task in tasks))
                    await requests.rest()
            requests.over.set()
            with suppress(TimeoutError):
                async with asyncio.timeout(LAST_ANSWERS_SECONDS):
                    await asyncio.wait(tasks)
                    await requests.rest()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            runner.close()
            await requests.close()
            await session.close()

    async def _until_signal(self) -> None:
        stop = asyncio.Event()
        program.on_stop_signal(stop.set, once=True)
        await self.serve(stop)
