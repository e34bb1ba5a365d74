"""The bus for threads: the one for asyncio, on a loop in a thread of its own."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, Self, TypeVar

from osrdyne_bus.aio import AsyncBus, AsyncBusClient, AsyncBusListener, AsyncBusServer, AsyncPoolClient
from osrdyne_bus.aio.kept_connection import Tls
from osrdyne_bus.aio.listener import Listener
from osrdyne_bus.endpoints import Endpoint
from osrdyne_bus.errors import BusClosed
from osrdyne_bus.messages.envelopes import Header
from osrdyne_bus.messages.wire import NO_HEADERS
from osrdyne_bus.peers import Addresses
from osrdyne_bus.settings import BusSettings
from osrdyne_bus.targets import Priority, Target
from osrdyne_calls.errors import ClientClosed
from osrdyne_calls.limits import MAX_BODY
from osrdyne_calls.replies import Reply
from osrdyne_protocol.errors import OtherProcess
from osrdyne_runtime.forks import Home

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
        # Held while work is handed over, so that none is after the end.
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._home: Home | None = None
        self._closed = False
        self._stop: asyncio.Event

    def open(self) -> None:
        """Start the thread and connect. Raises ConnectFailed and LoginRefused."""
        self._check_here()
        opened: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._home = Home()
        thread = threading.Thread(target=self._run, args=(opened,), name="osrdyne bus", daemon=True)
        with self._lock:
            thread.start()
            self._thread = thread  # which `close` may join now
        try:
            opened.result()
        except BaseException:
            self.close()
            raise

    def _run(self, opened: concurrent.futures.Future[None]) -> None:
        try:
            asyncio.run(self._serve(opened))
        except BaseException as error:  # noqa: BLE001 - it belongs to the thread that opens, or has been logged
            if not opened.done():
                opened.set_exception(error)
        finally:
            with self._lock:
                self._loop = None

    async def _serve(self, opened: concurrent.futures.Future[None]) -> None:
        self._stop = asyncio.Event()
        async with self.asynchronous:
            with self._lock:
                if self._closed:  # while it was opened, by Ctrl-C for example
                    raise BusClosed
                self._loop = asyncio.get_running_loop()
            opened.set_result(None)
            await self._stop.wait()

    def close(self) -> None:
        """End calls that wait with BusClosed, disconnect, and end the thread. Safe to repeat, in any thread.

        Raises RuntimeError in a handler that runs on the loop. Does nothing in a fork: thread and connection are the
        other process's.
        """
        if self._home is not None and not self._home.is_here:
            return  # before the lock, which a thread of the other process may have held
        self._refuse_own_thread()
        with self._lock:
            self._closed = True
            loop, self._loop = self._loop, None
            if loop is not None:
                loop.call_soon_threadsafe(self._stop.set)
        if self._thread is not None:
            self._thread.join()

    def _check_here(self) -> None:
        if self._home is not None:
            self._home.check("this bus")

    def _refuse_own_thread(self) -> None:
        if threading.current_thread() is self._thread:
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
        return self._loop is not None and self.asynchronous.is_connected

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine on the loop, and wait for it. Raises BusClosed, OtherProcess, and what it raises.

        Where the wait is interrupted, by Ctrl-C for example, the coroutine is cancelled.
        """
        try:
            self._check_here()
            self._refuse_own_thread()
        except BaseException:
            work.close()
            raise
        with self._lock:
            if self._loop is None:
                work.close()
                raise BusClosed("the bus is closed; open one with `with`")
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise BusClosed from None
        except BaseException:
            future.cancel()
            raise


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


class PoolClient:
    """Calls the workers of a pool from any number of threads."""

    def __init__(
        self, bus: Bus, pool: str, *, timeout: float = 60.0, max_body: int = MAX_BODY, resend: bool = True
    ) -> None:
        """Prepare a client, as `AsyncPoolClient`."""
        self._bus = bus
        self._client = AsyncPoolClient(bus.asynchronous, pool, timeout=timeout, max_body=max_body, resend=resend)

    def call(
        self,
        key: str,
        body: bytes,
        *,
        timeout: float | None = None,
        headers: Mapping[str, Header] = NO_HEADERS,
        deadline: bool = True,
    ) -> Reply:
        """Send a request to the workers of `key` and wait for their answer, as `AsyncPoolClient.call`."""
        try:
            return self._bus.run(self._client.call(key, body, timeout=timeout, headers=headers, deadline=deadline))
        except BusClosed as error:
            raise ClientClosed(str(error)) from error

    def cast(
        self, key: str, body: bytes, *, timeout: float | None = None, headers: Mapping[str, Header] = NO_HEADERS
    ) -> None:
        """Send a request without a reply and wait until the broker has it, as `AsyncPoolClient.cast`."""
        try:
            self._bus.run(self._client.cast(key, body, timeout=timeout, headers=headers))
        except BusClosed as error:
            raise ClientClosed(str(error)) from error


class _Started:
    """What a server and a listener share: they are started and stopped on the loop of their bus."""

    def __init__(self, bus: Bus, started: AsyncBusServer | AsyncBusListener) -> None:
        self._bus = bus
        self._started = started

    def start(self) -> None:
        """Attach the subscriptions. Raises LinkRefused, PeerLost, BusClosed."""
        self._bus.run(self._started.start())

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


class BusServer(_Started):
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


class BusListener(_Started):
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
