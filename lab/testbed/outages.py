"""Programs that lose what they need for more than a minute, and what each of them logs about it."""

from __future__ import annotations

import asyncio
import os
from contextlib import AbstractContextManager, AsyncExitStack, suppress
from pathlib import Path

from testbed import ROOT
from testbed.pool import DaemonProcess
from testbed.tcp_proxy import TcpProxy
from testbed.waiting import until_async

#: When an outage begins, once a minute while it lasts, and when it is over (docs/decisions/0055).
LINES = ("cannot be used; ", "still cannot be used; ", "can be used again")


class Programs:
    """The programs, the proxies on their way, and their logs."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._stack = AsyncExitStack()
        self._proxies: list[TcpProxy] = []
        self._processes: dict[str, asyncio.subprocess.Process] = {}
        self.logs: dict[str, Path] = {}

    async def __aenter__(self) -> Programs:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def proxy(self, port: int) -> TcpProxy:
        made = await self._stack.enter_async_context(TcpProxy(port))
        self._proxies.append(made)
        return made

    async def start(self, name: str, *words: str, **variables: str) -> None:
        log = self.logs[name] = self._directory / f"{name}.log"
        with log.open("wb") as file:
            process = await asyncio.create_subprocess_exec(
                *words, env={"PATH": os.environ["PATH"], **variables}, stdout=file, stderr=file, cwd=ROOT
            )

        self._processes[name] = process

        async def end() -> None:
            with suppress(ProcessLookupError):  # it has ended by itself
                process.kill()
            await process.wait()

        self._stack.push_async_callback(end)

    async def run(self, *words: str, **variables: str) -> None:
        """Run a command that must succeed."""
        process = await asyncio.create_subprocess_exec(*words, env={"PATH": os.environ["PATH"], **variables})
        assert await process.wait() == 0

    async def daemon(self, daemon: DaemonProcess) -> None:
        self._stack.push_async_callback(asyncio.to_thread, daemon.close)
        # In a thread: the proxy is on this loop.
        await asyncio.to_thread(daemon.start)
        self.logs["daemon"] = daemon.directory / "daemon-1.log"

    def keep(self, name: str, log: Path, program: AbstractContextManager[object]) -> None:
        """Take a program that is there, and its log."""
        self._stack.enter_context(program)
        self.logs[name] = log

    async def check_the_lines_of_an_outage(self) -> None:
        """Cut all connections through the proxies for over a minute. Raises AssertionError for a missing line."""
        for proxy in self._proxies:
            proxy.cut(refuse=True)
        await self._until_all_say(LINES[0])
        await self._until_all_say(LINES[1])
        for proxy in self._proxies:
            proxy.refuses = False
        await self._until_all_say(LINES[2])

    async def _until_all_say(self, line: str) -> None:
        def silent() -> list[str]:
            for name, process in self._processes.items():
                assert process.returncode is None, f"{name} ended:\n{self.logs[name].read_text()}"
            return [name for name, log in self.logs.items() if line not in log.read_text()]

        try:
            await until_async(lambda: not silent())
        except TimeoutError:
            text = "\n".join(f"{name}:\n{self.logs[name].read_text()}" for name in silent())
            raise AssertionError(f"no line with {line!r} of {text}") from None


def moved(address: str, port: int, to: int) -> str:
    """Return an address with another port."""
    assert f":{port}/" in address
    return address.replace(f":{port}/", f":{to}/")
