"""Verbs of a Docker engine: the one module that knows its library.

Every call runs in one of a few threads, has a time limit, and raises `DriverError` with the engine's text and what to
do. This module decides nothing, and remembers only the connection.
"""

from __future__ import annotations

import asyncio
import builtins
import concurrent.futures
import contextlib
import json
import os
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from osrdyne.drivers.docker.following import Event, Stream
from osrdyne.errors import DriverError, EngineAway
from osrdyne_protocol import foreign_json
from osrdyne_runtime import certificate_faults
from osrdyne_runtime.console.imports import extra

with extra("osrdyne[docker]"):
    import docker  # type: ignore[import-untyped]
    import docker.errors  # type: ignore[import-untyped]
    import docker.utils  # type: ignore[import-untyped]
    import requests.adapters

Found = TypeVar("Found")

#: Longest wait for one answer of the engine, in seconds.
TIMEOUT_SECONDS = 30.0
#: Longest wait for the answer to a stop: the engine answers when the container has stopped, and continues the stop
#: when the caller no longer waits.
_STOP_ANSWER_SECONDS = 0.2
#: Calls under way at once.
_THREADS = 16
#: TCP keepalive of a silent connection: first probe after 30 s, then every 10 s, at most 3 probes.
_PROBES = ((socket.TCP_KEEPIDLE, 30), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 3))


class EngineRefused(DriverError):
    """The engine refused the request."""


class NoSuchContainer(EngineRefused):
    """The container has gone."""


class Conflict(EngineRefused):
    """The name is taken, or the container is in a state in which this cannot be done."""


class Engine:
    """One engine. The first call connects, and so does the first call after `disconnect`."""

    def __init__(self, host: str | None) -> None:
        """`host` is its address, as in DOCKER_HOST; None for that of the environment."""
        self._environment = {**os.environ, **({"DOCKER_HOST": host} if host else {})}
        self._where = host or os.environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock"
        self._connecting = threading.Lock()
        self._client: Any = None
        self._threads = concurrent.futures.ThreadPoolExecutor(_THREADS, thread_name_prefix="docker")

    async def create(self, name: str, body: Mapping[str, Any]) -> str:
        """Create a container and return its id. Raises `Conflict` when the name is taken."""
        created = await self._call(lambda client: client.create_container_from_config(body, name))
        return str(created["Id"])

    async def start(self, container_id: str) -> None:
        """Start a container; one that runs is left alone."""
        await self._call(lambda client: client.start(container_id))

    async def stop(self, container_id: str) -> None:
        """Have the engine send the stop signal, and SIGKILL after the container's own grace; wait for neither."""

        def ask(client: Any) -> None:
            url = f"{client.base_url}/v{client.api_version}/containers/{container_id}/stop"
            with contextlib.suppress(requests.ReadTimeout):
                client.post(url, timeout=(TIMEOUT_SECONDS, _STOP_ANSWER_SECONDS)).raise_for_status()

        await self._call(ask)

    async def rename(self, container_id: str, name: str) -> None:
        """Give a container another name."""
        await self._call(lambda client: client.rename(container_id, name))

    async def remove(self, container_id: str) -> bool:
        """Remove a container and its nameless volumes; return whether it is gone.

        One that runs, or that another program is removing, is left alone.
        """
        try:
            await self._call(lambda client: client.remove_container(container_id, v=True))
        except NoSuchContainer:
            return True
        except Conflict:
            return False
        return True

    async def list(self, labels: Mapping[str, str]) -> list[dict[str, Any]]:
        """Return all containers with these labels, whatever their state."""
        filters = {"label": [f"{name}={text}" for name, text in labels.items()]}
        found: list[dict[str, Any]] = await self._call(lambda client: client.containers(all=True, filters=filters))
        return found

    async def inspect(self, container_id: str) -> dict[str, Any] | None:
        """Return all that the engine knows of a container, None when it has gone."""
        try:
            found: dict[str, Any] = await self._call(lambda client: client.inspect_container(container_id))
        except NoSuchContainer:
            return None
        return found

    async def processes(self, container_id: str) -> int:
        """Return how many processes run in a container.

        Raises `EngineRefused` for one that does not run, and where the engine's machine has no `ps`.
        """
        found: dict[str, Any] = await self._call(lambda client: client.top(container_id, "-o pid"))
        return len(found.get("Processes") or [])

    async def last_lines(self, container_id: str, most: int) -> builtins.list[str]:
        """Return the last lines that a container wrote; none where its log driver cannot be read."""
        try:
            wrote: bytes = await self._call(lambda client: client.logs(container_id, tail=most))
        except DriverError:
            return []
        return wrote.decode("utf-8", errors="replace").splitlines()

    async def past_events(self, container_id: str) -> builtins.list[Event]:
        """Return the engine's past events of a container: it keeps only the last 256 events of all containers."""

        def read(client: Any) -> builtins.list[Event]:
            filters = json.dumps({"container": [container_id]})
            # The answer ends at `until`: a little later than now, because the engine's clock may differ.
            parameters = {"since": "0", "until": str(int(time.time()) + 1), "filters": filters}
            url = f"{client.base_url}/v{client.api_version}/events"
            answer = client.get(url, params=parameters, timeout=TIMEOUT_SECONDS)
            answer.raise_for_status()
            return [foreign_json.read(line) for line in answer.content.split(b"\n") if line.strip()]

        return await self._call(read)

    async def events(self, labels: Mapping[str, str], actions: builtins.list[str]) -> Stream:
        """Return the events of containers with these labels, from now on."""
        filters = {"type": "container", "label": [f"{name}={text}" for name, text in labels.items()], "event": actions}
        stream: Stream = await self._call(lambda client: client.events(decode=True, filters=filters))
        return stream

    def disconnect(self) -> None:
        """Forget the connection: a restarted engine may have another version."""
        # Not under the lock: otherwise a thread that waits for the engine would block the event loop, too.
        client, self._client = self._client, None
        if client is not None:
            client.close()

    async def close(self) -> None:
        """Disconnect when the calls under way have their answer; calls that have not begun are dropped."""
        await asyncio.to_thread(self._threads.shutdown, wait=True, cancel_futures=True)
        self.disconnect()

    async def _call(self, verb: Callable[[Any], Found]) -> Found:
        def work() -> Found:
            with self._errors_as_refusals():
                return verb(self._connected())

        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def _connected(self) -> Any:
        with self._connecting:
            client = self._client
            if client is None:
                client = self._client = self._connect()
            return client

    def _connect(self) -> Any:
        found = docker.utils.kwargs_from_env(self._environment)
        client = docker.APIClient(**found, version="auto", timeout=TIMEOUT_SECONDS, max_pool_size=_THREADS)
        # Proxies of the environment are not for the engine; looking them up would take time at each call.
        client.trust_env = False
        for scheme in ("http://", "https://"):
            if client.base_url.startswith(scheme):
                client.mount(scheme, _KeepAliveAdapter(pool_maxsize=_THREADS))
        try:
            refuse(client.version()["Version"])
        except BaseException:
            client.close()
            raise
        return client

    @contextlib.contextmanager
    def _errors_as_refusals(self) -> Iterator[None]:
        """Turn the library's exceptions into errors of ours."""
        try:
            yield
        except requests.HTTPError as error:
            raise _refusal(error) from error
        except requests.Timeout as error:
            raise EngineAway(
                f"the Docker engine at {self._where} did not answer within {TIMEOUT_SECONDS:g} s; "
                "look at its log and its load"
            ) from error
        except (docker.errors.DockerException, requests.RequestException) as error:
            folder = self._environment.get("DOCKER_CERT_PATH")
            authority = folder and f"ca.pem in {folder}"
            fault = certificate_faults.fault(error, authority=authority, setting="ca.pem in DOCKER_CERT_PATH")
            hint = "is it running, is driver.host right, and may the daemon's user use it (group docker)?"
            raise EngineAway(
                f"the Docker engine at {self._where} cannot be reached: {fault or f'{_cause(error)}; {hint}'}"
            ) from error


class _KeepAliveAdapter(requests.adapters.HTTPAdapter):
    """Connections that detect a peer that vanished; a stream of events could not detect it."""

    def init_poolmanager(self, *args: Any, **options: Any) -> None:
        probes = [(socket.IPPROTO_TCP, name, number) for name, number in _PROBES]
        plain = [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1), (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
        super().init_poolmanager(*args, **options, socket_options=[*plain, *probes])


def refuse(version: str) -> None:
    """Raise `DriverError` for an engine that kills a worker at once when a daemon that asked it to stop goes away.

    These are 23.0 and 24.0 before 24.0.3: https://github.com/moby/moby/issues/45731.
    """
    numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:3])
    if (23,) <= numbers < (24, 0, 3):
        raise DriverError(
            f"Docker engine {version} kills a worker that is to finish its work, when the daemon ends meanwhile; "
            "update it to 24.0.3 or later"
        )


def _refusal(error: requests.HTTPError) -> DriverError:
    status, said = error.response.status_code, _said(error.response)
    if status == requests.codes.not_found and "no such container" in said.lower():
        return NoSuchContainer(said)
    if status == requests.codes.conflict:
        return Conflict(said)
    return EngineRefused(f"the Docker engine refuses it ({status}): {said}")


def _said(answer: requests.Response) -> str:
    try:
        return str(foreign_json.read(answer.content)["message"])
    except (ValueError, KeyError, TypeError):
        return answer.text.strip()[:200] or str(answer.reason)


def _cause(error: BaseException) -> str:
    """Return the system's error text if there is one; the library wraps it many times."""
    found = re.search(r"""Error\(\d+, ['"](.*?)['"]\)|\[Errno -?\d+\] ([^'")]+)""", str(error))
    return (found[1] or found[2]) if found else str(error)
