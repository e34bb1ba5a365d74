"""The processes of a cluster, each with a log of its own, and waiting for them."""

from __future__ import annotations

import signal
import ssl
import subprocess
import urllib.request
from collections.abc import Callable
from pathlib import Path

from testbed.waiting import until

#: Nothing else of the environment gets in: a web proxy, above all, is not for these addresses. /run is the node's own.
ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/run"}


class NodeFailed(RuntimeError):
    """A part of the cluster did not start; the text says which, and its last words."""


class Processes:
    """What runs, by name."""

    def __init__(self, log: Path) -> None:
        log.mkdir(parents=True, exist_ok=True)
        self._log = log
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._started: dict[str, tuple[list[str], dict[str, str]]] = {}

    def start(self, name: str, command: list[str], **environment: str) -> None:
        self._started[name] = (command, environment)
        with (self._log / name).open("ab") as log:
            self._running[name] = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**ENVIRONMENT, **environment},
                start_new_session=True,
            )

    def runs(self, name: str) -> bool:
        return name in self._running and self._running[name].poll() is None

    def wait(self, name: str, is_up: Callable[[], bool], within: float = 60.0) -> None:
        """Returns when the process is up. Raises NodeFailed when it has ended, or is not up in so many seconds."""
        process = self._running[name]
        try:
            until(lambda: process.poll() is not None or is_up(), within=within, what=f"{name} to be up")
        except AssertionError as late:
            raise NodeFailed(f"{late}; its last words:\n{self.last_words(name)}") from None
        if process.poll() is not None:
            words = self.last_words(name)
            raise NodeFailed(f"{name} ended with status {process.returncode}; its last words:\n{words}")

    def signal(self, name: str, number: int) -> None:
        """Sends a signal; one that ends the process has done so when this returns."""
        process = self._running[name]
        process.send_signal(number)
        if number in (signal.SIGTERM, signal.SIGKILL):
            process.wait(timeout=60)

    def start_again(self, name: str) -> None:
        """Starts a process that has ended as it was started before."""
        if self.runs(name):
            raise NodeFailed(f"{name} still runs")
        command, environment = self._started[name]
        self.start(name, command, **environment)

    def last_words(self, name: str) -> str:
        return (self._log / name).read_text(errors="replace")[-2000:]


def answers(url: str, cacertfile: Path | None = None) -> bool:
    """Whether this address answers a GET with success; over TLS, as a server of that CA."""
    context = ssl.create_default_context(cafile=cacertfile) if cacertfile else None
    handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]
    handlers += [urllib.request.HTTPSHandler(context=context)] if context else []
    try:
        with urllib.request.build_opener(*handlers).open(url, timeout=2):
            return True
    except OSError:
        return False


def run(*command: str, stdin: str | None = None) -> str:
    """Output of a command. Raises NodeFailed with what it said when it fails."""
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, input=stdin, env=ENVIRONMENT, timeout=120
    )
    if done.returncode:
        raise NodeFailed(f"{' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout
