"""Driver `docker`: the engine is a real dockerd, seen through its command and through /proc."""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from osrdyne.drivers.docker.driver import DockerDriver
from osrdyne.drivers.docker.template import INSTANCE, KEY, POOL
from osrdyne_pool.settings import PoolSettings
from testbed import docker
from testbed.docker import Docker
from testbed.waiting import until_async
from tests.drivers.subjects.base import WORKER_URI, OwningSubject


@dataclass(frozen=True)
class Engine:
    """One engine, and the image of the workers."""

    docker: Docker
    image: str

    @property
    def host(self) -> str | None:
        return self.docker.environment.get("DOCKER_HOST")


class DockerSubject(OwningSubject):
    """Workers are containers on the network of this machine; each test has a pool of its own."""

    name = "docker"
    heals = True

    @classmethod
    @contextlib.contextmanager
    def engine(cls) -> Iterator[Engine]:
        with docker.engine() as found:
            yield Engine(found, found.worker())

    def __init__(self, engine: Engine, directory: Path) -> None:
        super().__init__(engine, directory)
        self.pool = f"echo-{secrets.token_hex(4)}"
        self.docker = engine.docker
        self.host = engine.host
        self.image = engine.image
        self.directory = directory
        #: Alone in its directory, as it has to be.
        self.uri_file = directory / "credential" / "worker-uri"
        self.uri_file.parent.mkdir()
        self.uri_file.write_text(WORKER_URI)
        self._pools = {self.pool}
        self._drivers: list[DockerDriver] = []

    def driver(self, *, pool: str | None = None, instance: str = "one", template: str = "a") -> DockerDriver:
        return self.driver_of({"Env": [f"TEMPLATE={template}"]}, pool=pool, instance=instance)

    def driver_of(
        self,
        template: dict[str, Any],
        *,
        pool: str | None = None,
        instance: str = "one",
        host: str | None = None,
        **settings: Any,
    ) -> DockerDriver:
        """Opens the driver with a template of a test's own; image and network need not be named in it."""
        declared = {"Image": self.image, **template}
        declared["HostConfig"] = {"NetworkMode": "host", **template.get("HostConfig", {})}
        file = self.directory / "template.json"
        file.write_text(json.dumps(declared))
        pool = pool or self.pool
        self._pools.add(pool)
        driver = DockerDriver(PoolSettings(pool, instance, **settings), file, self.uri_file, host=host or self.host)
        self._drivers.append(driver)
        return driver

    async def until_removed(self, key: str) -> None:
        """Wait until the engine has no container of a key."""

        async def removed() -> bool:
            return await self.containers(key) == []

        await until_async(removed)

    async def containers(
        self, key: str | None = None, *, pool: str | None = None, instance: str = "one"
    ) -> list[dict[str, Any]]:
        """Returns what the engine knows of a key's containers, of all keys by default, whatever their state."""
        labels = {POOL: pool or self.pool, INSTANCE: instance, **({} if key is None else {KEY: key})}
        filters = [word for name, text in labels.items() for word in ("--filter", f"label={name}={text}")]
        while True:
            try:
                ids = (await self.run("ps", "--all", "--quiet", "--no-trunc", *filters)).split()
                return list(json.loads(await self.run("inspect", *ids))) if ids else []
            except docker.DockerFailed as error:
                if "No such" not in str(error):  # one went between the two
                    raise

    async def run(self, *arguments: str) -> str:
        """Returns the output of `docker ARGUMENTS`."""
        return await asyncio.to_thread(self.docker, *arguments)

    async def process(self, key: str, *, pool: str | None = None, instance: str = "one") -> psutil.Process | None:
        """Returns the worker's process, which the container's first process has started; None while there is none."""
        for container in await self.containers(key, pool=pool, instance=instance):
            with contextlib.suppress(psutil.NoSuchProcess, IndexError):
                if container["State"]["Pid"]:
                    return psutil.Process(container["State"]["Pid"]).children()[0]
        return None

    async def environments(self, key: str, *, pool: str | None = None, instance: str = "one") -> list[dict[str, str]]:
        async def environment() -> dict[str, str] | None:
            process = await self.process(key, pool=pool, instance=instance)
            if process is None:
                return {}
            variables = await asyncio.to_thread(_as_root, "cat", f"/proc/{process.pid}/environ")
            found = dict(word.split("=", 1) for word in variables.split("\0") if word)
            # The shell before the worker has not read the file yet.
            return found if "WORKER_AMQP_URI" in found else None

        async def settled() -> list[dict[str, str]] | None:
            found = await environment()
            return None if found is None else [found]

        found = await until_async(settled)
        return [line for line in found or [] if line]

    async def workers(self, key: str, *, pool: str | None = None, instance: str = "one") -> list[str]:
        process = await self.process(key, pool=pool, instance=instance)
        with contextlib.suppress(psutil.NoSuchProcess):
            if process is not None:
                return [f"{process.pid} of {process.create_time()}"]
        return []

    async def kill(self, key: str) -> None:
        # Not by `docker kill`: the engine holds that for a wish, and brings the worker not back.
        process = await self.process(key)
        assert process is not None
        await asyncio.to_thread(_as_root, "kill", "-9", str(process.pid))

    async def output(self, key: str) -> str:
        with contextlib.suppress(docker.DockerFailed):  # one went meanwhile, and its output with it
            return "".join([await self.run("logs", container["Id"]) for container in await self.containers(key)])
        return ""

    async def inspectable(self) -> bytes:
        containers = json.dumps(await self.containers())
        listing = await self.run("ps", "--all", "--no-trunc", "--format", "{{json .}}")
        commands = [" ".join(process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"])]
        return "\n".join([containers, listing, await self.run("inspect", self.image), *commands]).encode()

    async def clean_up(self) -> None:
        for driver in self._drivers:
            await driver.close()
        for pool in self._pools:
            left = (await self.run("ps", "--all", "--quiet", "--filter", f"label={POOL}={pool}")).split()
            if left:
                await self.run("rm", "--force", "--volumes", *left)


def _as_root(*command: str) -> str:
    # Decoded here: as text, a carriage return would be taken for a line break.
    return subprocess.run(docker._as_root(*command), check=True, capture_output=True).stdout.decode()
