"""The API server away, silent, or strict: each call ends with a reason and what to do, and nothing is lost."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import signal
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml  # type: ignore[import-untyped]
from kubernetes.aio.config import incluster_config

from osrdyne.drivers.base import Driver, GroupState
from osrdyne.drivers.kubernetes import api
from osrdyne.drivers.kubernetes.driver import KubernetesDriver
from osrdyne.errors import DriverError, is_away
from osrdyne_protocol.errors import SettingsError
from testbed.waiting import PATIENCE_SECONDS, until_async
from tests.drivers.subjects.base import listed
from tests.drivers.subjects.kubernetes import NAMESPACE, TIMEOUT_SECONDS, KubernetesSubject

pytestmark = [pytest.mark.xdist_group("kubernetes"), pytest.mark.full]


class Relay:
    """A way to the API server that can be cut, or go silent."""

    def __init__(self, host: str, port: int) -> None:
        self._far = (host, port)
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.passing = asyncio.Event()
        self.passing.set()
        self.port = 0

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            far_reader, far_writer = await asyncio.open_connection(*self._far)
            try:
                async with asyncio.TaskGroup() as both:
                    both.create_task(self._pass_on(reader, far_writer))
                    both.create_task(self._pass_on(far_reader, writer))
            finally:
                far_writer.transport.abort()
        except* (OSError, asyncio.CancelledError):
            pass
        finally:
            writer.transport.abort()
            self._tasks.discard(task)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            await self.passing.wait()
            writer.write(data)
            await writer.drain()
        raise ConnectionResetError


def kubeconfig(kube: KubernetesSubject, **changes: Any) -> Path:
    """The daemon's kubeconfig, with another server, or another user."""
    made = yaml.safe_load(kube.kubeconfig.read_text())
    server = urlsplit(made["clusters"][0]["cluster"]["server"])
    changed: dict[str, Any] = {"tls-server-name": server.hostname, **changes.pop("cluster", {})}
    made["clusters"][0]["cluster"].update(changed)
    made["users"][0]["user"].update(changes.pop("user", {}))
    path = kube.directory / "kubeconfig"
    path.write_text(yaml.safe_dump(made))
    return path


def limit(driver: KubernetesDriver, seconds: float = TIMEOUT_SECONDS) -> None:
    """Let calls of a driver take so long from now on: what must succeed gets the time of a busy machine."""
    driver._timeout = driver._api._timeout = seconds


@pytest.fixture
async def relay(kube: KubernetesSubject) -> AsyncIterator[Relay]:
    server = urlsplit(yaml.safe_load(kube.kubeconfig.read_text())["clusters"][0]["cluster"]["server"])
    assert server.hostname
    made = Relay(server.hostname, server.port or 443)
    await made.open()
    yield made
    await made.close()


async def test_while_the_api_server_is_away_every_call_says_so_and_then_all_is_as_it_is(
    kube: KubernetesSubject, relay: Relay
) -> None:
    # Given two groups
    file = kubeconfig(kube, cluster={"server": f"https://127.0.0.1:{relay.port}"})
    driver = kube.driver_of(kube.declared(), kubeconfig=file)
    for key in ("stays", "goes"):
        await driver.start(key)
    await kube.until_running(driver, "stays", "goes")
    before = await kube.workers("stays")
    # When the API server goes
    await relay.close()

    async def away() -> bool:
        return not driver._deployments.is_synced

    await until_async(away)
    limit(driver, 2)
    for attempt in (driver.list(), driver.start("a"), driver.stop("stays")):
        with pytest.raises(DriverError, match="no answer of the API server") as caught:
            await attempt
        assert is_away(caught.value)
    # And something happens meanwhile
    kube.kubectl("delete", "deployment", kube.group("goes"))
    # Then it is seen when the API server is back, and no worker was restarted
    limit(driver)
    await relay.open()
    async with asyncio.timeout(PATIENCE_SECONDS):
        assert await driver_sees(driver) == {"stays"}
    assert (await listed(driver))["stays"].state is GroupState.RUNNING
    assert await kube.workers("stays") == before
    await driver.start("a")
    await kube.until_running(driver, "a")


async def test_a_killed_api_server_costs_no_worker_and_is_found_again(kube: KubernetesSubject) -> None:
    driver = kube.driver_of(kube.declared())
    await kube.ready(driver, "a")
    before = await kube.workers("a")
    kube.cluster.signal("api-server", signal.SIGKILL)
    try:

        async def away() -> bool:
            return not driver._deployments.is_synced

        await until_async(away)
    finally:
        kube.cluster.start_again("api-server")
    async with asyncio.timeout(PATIENCE_SECONDS):
        assert await driver_sees(driver) == {"a"}
    assert await kube.workers("a") == before
    await driver.start("b")
    await kube.until_running(driver, "a", "b")


async def driver_sees(driver: Driver) -> set[str]:
    while True:
        with contextlib.suppress(DriverError):
            return {group.key for group in await driver.list()}


async def test_a_silent_api_server_holds_no_call_up_for_long(kube: KubernetesSubject, relay: Relay) -> None:
    file = kubeconfig(kube, cluster={"server": f"https://127.0.0.1:{relay.port}"})
    driver = kube.driver_of(kube.declared(), kubeconfig=file)
    await driver.start("a")
    relay.passing.clear()
    limit(driver, 1)
    with pytest.raises(DriverError, match="did not answer within 1 s"):
        await driver.start("b")
    limit(driver)
    relay.passing.set()
    await driver.start("b")


async def test_an_address_where_nothing_listens_is_reported_within_the_timeout(kube: KubernetesSubject) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        file = kubeconfig(kube, cluster={"server": f"https://127.0.0.1:{unused.getsockname()[1]}"})
        driver = kube.driver_of(kube.declared(), kubeconfig=file, timeout=1)
        with pytest.raises(DriverError, match=r"no answer of the API server.*it is tried again"):
            await driver.list()


async def test_a_token_that_is_not_known_is_reported_and_a_new_one_in_the_file_is_used(kube: KubernetesSubject) -> None:
    file = kubeconfig(kube, user={"token": "verysecret"})
    driver = kube.driver_of(kube.declared(), kubeconfig=file)
    with pytest.raises(DriverError, match="the API server does not know us; check the service account") as refused:
        await driver.list()
    assert "verysecret" not in str(refused.value)
    file.write_text(kube.kubeconfig.read_text())

    async def known() -> bool:
        with contextlib.suppress(DriverError):
            return await driver.list() == []
        return False

    await until_async(known)


async def test_a_namespace_that_is_not_there_is_reported(kube: KubernetesSubject) -> None:
    driver = kube.driver_of(kube.declared(), kubeconfig=kube.cluster.kubeconfig, namespace="not-there")
    with pytest.raises(DriverError, match='namespaces "not-there" not found; create the namespace'):
        await driver.start("a")


@pytest.mark.parametrize("text", ["", "a: [", "clusters: 3", "current-context: a", "\0"])
async def test_a_kubeconfig_that_is_none_is_reported_with_its_name(kube: KubernetesSubject, text: str) -> None:
    file = kube.directory / "kubeconfig"
    file.write_text(text)
    with pytest.raises(DriverError, match=f"cannot reach the API server: .*; correct {file}"):
        await kube.driver_of(kube.declared(), kubeconfig=file, timeout=1).list()


def test_a_kubeconfig_that_is_missing_ends_the_start(kube: KubernetesSubject) -> None:
    with pytest.raises(SettingsError, match=r"driver.kubeconfig.*is not a file"):
        kube.driver_of(kube.declared(), kubeconfig=kube.directory / "none")


async def test_a_server_with_another_certificate_is_not_trusted(kube: KubernetesSubject) -> None:
    file = kubeconfig(kube, cluster={"tls-server-name": "another.host"})
    with pytest.raises(DriverError, match="certificate"):
        await kube.driver_of(kube.declared(), kubeconfig=file).list()


def without_kubeconfig(kube: KubernetesSubject, namespace: str | None = None) -> KubernetesDriver:
    """The driver as it is inside a cluster."""
    driver = kube.driver_of(kube.declared())
    driver._api._kubeconfig = None
    driver._api._namespace = namespace
    return driver


async def test_inside_a_cluster_the_service_accounts_files_are_enough(
    kube: KubernetesSubject, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # Given what the kubelet puts into a pod
    made = yaml.safe_load(kube.kubeconfig.read_text())
    cluster = made["clusters"][0]["cluster"]
    authority = Path(cluster["certificate-authority"]) if "certificate-authority" in cluster else None
    (tmp_path / "token").write_text(made["users"][0]["user"]["token"])
    (tmp_path / "namespace").write_text(NAMESPACE)
    (tmp_path / "ca.crt").write_bytes(
        authority.read_bytes() if authority else base64.b64decode(cluster["certificate-authority-data"])
    )
    server = urlsplit(cluster["server"])
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", str(server.hostname))
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(server.port))
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(tmp_path / "ca.crt"))
    monkeypatch.setattr(api, "_OWN_NAMESPACE", tmp_path / "namespace")
    # Then a group is started where the daemon is
    driver = without_kubeconfig(kube)
    await driver.start("a")
    await kube.until_running(driver, "a")
    assert kube.get("deployment", kube.group("a"))["metadata"]["namespace"] == NAMESPACE


async def test_outside_a_cluster_a_kubeconfig_is_asked_for(
    kube: KubernetesSubject, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(DriverError, match=r"outside a cluster set driver.kubeconfig"):
        await without_kubeconfig(kube, NAMESPACE).list()
