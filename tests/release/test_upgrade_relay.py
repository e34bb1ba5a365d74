"""Nodes of a relay come from the release before to this one, and back, one by one: every call is answered."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from osrdyne_relay.http.access import sha256_of
from osrdyne_runtime.settings_text import to_toml
from testbed.ports import PortBlock
from testbed.redis import RedisServer
from testbed.waiting import PATIENCE_SECONDS, until
from tests.release.two_versions import KEYS, Caller, Version, last_answers

pytestmark = [pytest.mark.full, pytest.mark.timeout(1200)]

TOKEN = "a-token-of-all-clients"
LATEST_SECONDS = 10.0
WORKER = """
import os, sys
from osrdyne_relay.worker import RelayWorker
RelayWorker(
    os.environ["NODES"].split(),
    sys.argv[1:],
    lambda request: f"{os.getpid()} {sys.prefix}".encode(),
    token=os.environ["TOKEN"],
).run()
"""
CALLER = Caller(
    "from osrdyne_relay.client import RelayClient",
    "RelayClient(os.environ['NODES'].split(), token=os.environ['TOKEN'])",
    "f'e/{key}'",
)
#: Those of callers of both versions.
ENDPOINTS = [f"e/{name}-{number}" for name in ("before", "after") for number in range(KEYS)]


@dataclass
class LiveRelay:
    """Two nodes on one Redis, and workers."""

    folder: Path
    redis: RedisServer
    ports: list[int]
    nodes: list[subprocess.Popen[bytes] | None] = field(default_factory=lambda: [None, None])

    @property
    def variables(self) -> dict[str, str]:
        nodes = " ".join(f"http://127.0.0.1:{port}" for port in self.ports)
        return {"PATH": os.environ["PATH"], "NODES": nodes, "TOKEN": TOKEN}

    def exchange_node(self, number: int, version: Version) -> None:
        """End a node as a service manager does, and start one of a version in its place."""
        if (former := self.nodes[number]) is not None:
            end(former)
        access = {"clients": {"all": {"token_sha256": sha256_of(TOKEN), "serve": ["e/*"], "call": ["e/*"]}}}
        (self.folder / "access.toml").write_text(to_toml(access))
        serve = {"port": self.ports[number], "access_file": str(self.folder / "access.toml")}
        file = self.folder / f"node-{number}.toml"
        file.write_text(to_toml({"relay": {"redis": {"url_file": str(self.redis.address_file)}, "serve": serve}}))
        log = self.folder / f"node-{number}.log"
        with log.open("wb") as output:
            command = [version.environment.program("osrdyne"), "relay", "serve", "--settings", str(file)]
            node = subprocess.Popen(command, env={"PATH": os.environ["PATH"]}, stdout=output, stderr=output)
        self.nodes[number] = node
        until(lambda: "address" in log.read_text() or node.poll() is not None, what="the node listens")
        assert node.poll() is None, log.read_text()

    def answered_by(self, version: Version) -> Callable[[], bool]:
        """Whether the last answer of each endpoint is of a version."""
        place = f" {version.environment.place}"
        return lambda: all(answer.endswith(place) for answer in last_answers(self.folder).values())


@contextmanager
def served(version: Version, variables: Mapping[str, str], endpoints: Sequence[str]) -> Iterator[None]:
    """Have a worker of a version serve; it ends with what it has in hand."""
    worker = subprocess.Popen([version.python, "-c", WORKER, *endpoints], env=variables)
    try:
        yield
    finally:
        end(worker)


def end(process: subprocess.Popen[bytes]) -> None:
    """Ask a process to end, and see it end well."""
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=PATIENCE_SECONDS) == 0


@pytest.fixture
def relay(tmp_path: Path) -> Iterator[LiveRelay]:
    ports = PortBlock()
    with RedisServer() as redis:
        live = LiveRelay(tmp_path, redis, [ports.first, ports.first + 1])
        yield live
        for node in live.nodes:
            if node is not None and node.poll() is None:
                end(node)
    ports.release()


def test_a_relay_is_exchanged_part_by_part_and_back_and_every_call_is_answered(
    relay: LiveRelay, before: Version, after: Version
) -> None:
    relay.exchange_node(0, before)
    relay.exchange_node(1, before)
    with ExitStack() as callers:
        former = ExitStack()
        # After the callers, and whichever workers serve then
        callers.callback(lambda: former.close())  # noqa: PLW0108
        former.enter_context(served(before, relay.variables, ENDPOINTS))
        answers = [
            callers.enter_context(CALLER.called(version, relay.folder, relay.variables)) for version in (before, after)
        ]
        # To this version, and back
        for version in (after, before):
            relay.exchange_node(0, version)
            relay.exchange_node(1, version)
            with ExitStack() as workers:
                workers.enter_context(served(version, relay.variables, ENDPOINTS))
                former.close()
                until(relay.answered_by(version), what="answers of the other workers")
                former = workers.pop_all()

    for called in answers:
        assert max(seconds for *_, seconds in called.lines) < LATEST_SECONDS
        kinds = {Path(worker.split()[-1]) for seen in called.workers().values() for worker in seen}
        assert kinds == {before.environment.place, after.environment.place}
