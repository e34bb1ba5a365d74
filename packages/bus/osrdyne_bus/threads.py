"""The bus for threads: the one for asyncio, on a loop in a thread of its own."""

from __future__ import annotations

import concurrent.futures
import contextlib
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, Self, TypeVar

from osrdyne_bus.aio import AsyncBus, AsyncBusClient, AsyncBusListener, AsyncBusServer
from osrdyne_bus.aio.kept_connection import Tls
from osrdyne_bus.aio.serving.listener import Listener
from osrdyne_bus.endpoints import Endpoint
from osrdyne_bus.errors import BusClosed
from osrdyne_bus.messages.envelopes import Header
from osrdyne_bus.messages.wire import NO_HEADERS
from osrdyne_bus.peers import Addresses
from osrdyne_bus.settings import BusSettings
from osrdyne_bus.targets import Priority, Target
from osrdyne_calls.replies import Reply
from osrdyne_protocol.errors import OtherProcess
from osrdyne_runtime.portal import Portal

__all__ = ["Bus", "BusClient", "BusListener", "BusServer"]

Result = TypeVar("Result")


class Bus:
    """A connection that any number of threads use. Use it with `with`.

    In a process that is forked after `open`, all that uses it raises OtherProcess, and `close` does nothing.
    """

    def __init__(
        self,
        peers: Addresses,
        *,
        settings: BusSettings | None = None,
        tls: Tls = None,
        mechanisms: str | None = None,
        name: str = "osrdyne",
    ) -> None:
        """Prepare a bus, as `AsyncBus`."""
        self.asynchronous = AsyncBus(peers, settings=settings, tls=tls, mechanisms=mechanisms, name=name)
        self._portal = Portal("bus", BusClosed)

    def open(self) -> None:
        """Start the thread and connect. Raises ConnectFailed and LoginRefused."""
        self._portal.open(self.asynchronous)

    def close(self) -> None:
        """End calls that wait with BusClosed, disconnect, and end the thread. Safe to repeat, in any thread.

        Takes a second at most, whatever the peer does. Raises RuntimeError in a handler that runs on the loop. Does
        nothing in a fork: thread and connection are the other process's.
        """
        self._refuse_own_thread()
        self._portal.close()

    def _refuse_own_thread(self) -> None:
        if self._portal.is_own_thread:
            raise RuntimeError("an `async def` handler has to use the bus' `asynchronous`, and await it")

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @property
    def is_connected(self) -> bool:
        return self._portal.is_open and self.asynchronous.is_connected

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine on the loop, and wait for it. Raises BusClosed, OtherProcess, and what it raises.

        Where the wait is interrupted, by Ctrl-C for example, the coroutine is cancelled.
        """
        try:
            self._refuse_own_thread()
        except BaseException:
            work.close()
            raise
        return self._portal.run(work)


class BusClient:
    """Calls the servers of targets from any number of threads."""

    def __init__(
        self,
        bus: Bus,
        *,
        namespace: str = "",
        version: str = "1.0",
        allowed_errors: Iterable[type[Exception]] = (),
    ) -> None:
        """Prepare a client, as `AsyncBusClient`."""
        self._bus = bus
        self._client = AsyncBusClient(
            bus.asynchronous, namespace=namespace, version=version, allowed_errors=allowed_errors
        )

    def call(
        self,
        target: Target,
        method: str,
        body: bytes = b"",
        *,
        timeout: float | None = None,
        headers: Mapping[str, Header] = NO_HEADERS,
        content_type: str | None = None,
    ) -> Reply:
        """Ask one server of a target, and return its answer, as `AsyncBusClient.call`."""
        return self._bus.run(
            self._client.call(target, method, body, timeout=timeout, headers=headers, content_type=content_type)
        )

    def cast(
        self,
        target: Target,
        method: str,
        body: bytes = b"",
        *,
        timeout: float | None = None,
        headers: Mapping[str, Header] = NO_HEADERS,
        content_type: str | None = None,
    ) -> None:
        """Send a request without a reply to one server, as `AsyncBusClient.cast`."""
        self._bus.run(
            self._client.cast(target, method, body, timeout=timeout, headers=headers, content_type=content_type)
        )

    def fanout(
        self,
        target: Target,
        method: str,
        body: bytes = b"",
        *,
        timeout: float | None = None,
        headers: Mapping[str, Header] = NO_HEADERS,
        content_type: str | None = None,
    ) -> None:
        """Send a request without a reply to all servers of a target, as `AsyncBusClient.fanout`."""
        self._bus.run(
            self._client.fanout(target, method, body, timeout=timeout, headers=headers, content_type=content_type)
        )

    def notify(
        self,
        target: Target,
        event_type: str,
        body: bytes = b"",
        *,
        priority: Priority = Priority.INFO,
        publisher: str | None = None,
        timeout: float | None = None,
        headers: Mapping[str, Header] = NO_HEADERS,
        content_type: str | None = None,
    ) -> None:
        """Say to one of the listeners of a target what happened, as `AsyncBusClient.notify`."""
        self._bus.run(
            self._client.notify(
                target,
                event_type,
                body,
                priority=priority,
                publisher=publisher,
                timeout=timeout,
                headers=headers,
                content_type=content_type,
            )
        )


class _BlockingConsumer:
    """What a server and a listener share: they are started and stopped on the loop of their bus."""

    def __init__(self, bus: Bus, started: AsyncBusServer | AsyncBusListener) -> None:
        self._bus = bus
        self._started = started

    def start(self, timeout: float | None = None) -> None:
        """Attach the subscriptions, and return when they can be reached, within `timeout` seconds.

        By default within the setting `start_timeout`. Raises as `AsyncBusServer.start`.
        """
        self._bus.run(self._started.start(timeout))

    def stop(self) -> None:
        """Take no more, give back what was not begun, and return when the rest is done. Safe to repeat."""
        with contextlib.suppress(BusClosed, OtherProcess):  # whose end has taken all back, or will
            self._bus.run(self._started.stop())

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()


class BusServer(_BlockingConsumer):
    """Serves requests while other threads do something else. Plain handlers run in threads. Use it with `with`."""

    def __init__(
        self,
        bus: Bus,
        target: Target,
        endpoints: Sequence[Endpoint],
        *,
        concurrency: int = 64,
        acknowledge: Literal["start", "end"] = "start",
        executor: concurrent.futures.Executor | None = None,
    ) -> None:
        """Prepare a server, as `AsyncBusServer`."""
        served = AsyncBusServer(
            bus.asynchronous, target, endpoints, concurrency=concurrency, acknowledge=acknowledge, executor=executor
        )
        super().__init__(bus, served)


class BusListener(_BlockingConsumer):
    """Takes notifications while other threads do something else. Use it with `with`."""

    def __init__(
        self,
        bus: Bus,
        target: Target,
        handler: Listener,
        *,
        priorities: Sequence[Priority] = (Priority.INFO,),
        concurrency: int = 64,
        executor: concurrent.futures.Executor | None = None,
    ) -> None:
        """Prepare a listener, as `AsyncBusListener`."""
        listens = AsyncBusListener(
            bus.asynchronous, target, handler, priorities=priorities, concurrency=concurrency, executor=executor
        )
        super().__init__(bus, listens)
