"""A live pool: a daemon and workers of one version or another, and those who call it all the time."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pika

from osrdyne_runtime.settings_text import to_toml
from testbed.waiting import PATIENCE_SECONDS, until
from tests.conftest import Vhost
from tests.release.two_versions import KEYS, Answers, Caller, Version, last_answers

#: No reply comes later than that, in seconds, whatever is exchanged.
LATEST_SECONDS = 10.0
#: Says which process answered, and of which environment.
WORKER = """
import os, sys
from osrdyne_worker import run
run(lambda request: f"{os.getpid()} {sys.prefix}".encode())
"""
CALLER = Caller("from osrdyne_client import Client", "Client(os.environ['AMQP_URI'], 'core')")
#: Calls a key once.
ASK = """
import os, sys
from osrdyne_client import Client
with Client(os.environ["AMQP_URI"], "core") as client:
    client.call(sys.argv[1], b"", timeout=60)
"""


@dataclass
class LivePool:
    """A pool with its daemon, and callers of both versions, each with keys of its own."""

    folder: Path
    variables: dict[str, str]
    #: The broker as its administrator reaches it.
    administrator: str
    #: Tables of the pool beside its name and delays, and variables of its workers.
    pool: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    #: Program that calls a key once.
    ask: str = ASK
    daemon: subprocess.Popen[bytes] | None = None
    started: int = 0

    def declare(self, version: Version) -> None:
        """Declare the pool's exchanges, queues and policies, as that version has them."""
        script = version.tree / "examples/quickstart/declare_pool.py"
        apply = [version.environment.program("osrdyne"), "pool", "apply", "--settings", "settings.toml"]
        command = [version.python, str(script), "core"] if script.exists() else apply
        subprocess.run(command, env=self.variables, cwd=self.folder, check=True)

    def settings(self, workers: Version) -> None:
        """Have workers started of a version."""
        pool = {"name": "core", "unbind_delay": 600, "stop_delay": 600, **self.pool}
        command = [workers.python, str(self.folder / "worker.py")]
        template = {"command": command, "environment": self.environment}
        driver = {"kind": "subprocess", "state_directory": str(self.folder / "state"), "template": template}
        text = to_toml({"pool": pool, "driver": driver, "status": {"port": 0}})
        (self.folder / "settings.toml").write_text(text)

    def exchange_daemon(self, version: Version) -> None:
        """End the daemon as a service manager does, and start one of a version. A key that is called between waits."""
        self.end_daemon()
        with self.new_key_asked(version) if self.started else nullcontext():
            self.start_daemon(version)

    @contextmanager
    def new_key_asked(self, version: Version) -> Iterator[None]:
        """Have a key called that has no worker; its request waits, and is answered after the context ends."""
        command = [version.python, "-c", self.ask, f"new-{self.started}"]
        with subprocess.Popen(command, env=self.variables) as caller:
            try:
                until(self.holds_orphan, what="a request that waits")
                yield
                assert caller.wait(timeout=LATEST_SECONDS) == 0
            finally:
                caller.kill()

    def holds_orphan(self) -> bool:
        with pika.BlockingConnection(pika.URLParameters(self.administrator)) as connection:
            declared = connection.channel().queue_declare("core-orphan", passive=True)
            return int(declared.method.message_count) > 0

    def start_daemon(self, version: Version) -> None:
        self.started += 1
        log = self.folder / f"daemon-{self.started}.log"
        with log.open("wb") as file:
            command = [version.python, "-m", "osrdyne.cli", "daemon", "--settings", "settings.toml"]
            self.daemon = subprocess.Popen(command, cwd=self.folder, env=self.variables, stdout=file, stderr=file)
        until(lambda: "acting" in log.read_text() or self.ended(), what="the daemon acts")
        assert not self.ended(), log.read_text()

    def ended(self) -> bool:
        return self.daemon is None or self.daemon.poll() is not None

    def end_daemon(self) -> None:
        if self.daemon is not None:
            self.daemon.send_signal(signal.SIGTERM)
            try:
                assert self.daemon.wait(timeout=PATIENCE_SECONDS) == 0
            finally:
                self.daemon.kill()
                self.daemon.wait()

    def answered_by(self, workers: Version) -> Callable[[], bool]:
        """Whether the last answer of each key is of a version."""

        def all_are() -> bool:
            return all(
                answer.endswith(f" {workers.environment.place}") for answer in last_answers(self.folder).values()
            )

        return all_are

    def go_there_and_back(self, before: Version, after: Version, first: str) -> list[Answers]:
        """Exchange the daemon or the workers first, then the rest, and go back likewise, while both versions call."""
        self.settings(before)
        self.declare(before)
        self.exchange_daemon(before)
        of_both = [(after, before), (before, after)]
        there, back = of_both if first == "daemon" else reversed(of_both)
        with ExitStack() as callers:
            answers = [
                callers.enter_context(CALLER.called(version, self.folder, self.variables))
                for version in (before, after)
            ]
            # What is declared comes first
            self.declare(after)
            for daemon, workers in (there, (after, after), back, (before, before)):
                self.settings(workers)
                self.exchange_daemon(daemon)
                until(self.answered_by(workers), what="answers of the workers that were exchanged")
            self.declare(before)
        return answers


def check_all_answered(answers: list[Answers], before: Version, after: Version) -> None:
    """Every call was answered in time, and no worker was restarted without need.

    Raises AssertionError.
    """
    for called in answers:
        assert max(seconds for *_, seconds in called.lines) < LATEST_SECONDS
        # Each key had one worker of each kind, and the first one's successor
        kinds = {key: [Path(worker.split()[1]) for worker in seen] for key, seen in called.workers().items()}
        places = [before.environment.place, after.environment.place, before.environment.place]
        assert kinds == dict.fromkeys(kinds, places)
        assert len(kinds) == KEYS


Live = TypeVar("Live", bound=LivePool)


@contextmanager
def live_pool(
    vhost: Vhost, folder: Path, worker: str, make: Callable[[Path, dict[str, str], str], Live]
) -> Iterator[Live]:
    """Give a pool that nothing is declared of yet; `worker` is the program of its workers, which end with it."""
    broker = vhost.broker
    user, password = broker.admin, broker.admin_password
    variables = {
        "PATH": os.environ["PATH"],
        "AMQP_URI": vhost.amqp_uri(),
        "OSRDYNE_DAEMON_BROKER__AMQP_URI": vhost.amqp_uri(),
        "OSRDYNE_DAEMON_DRIVER__WORKER_AMQP_URI": vhost.amqp_uri(),
        "MANAGEMENT_URI": broker.management_url.replace("://", f"://{user}:{password}@"),
    }
    variables["OSRDYNE_DAEMON_BROKER__MANAGEMENT_URI"] = variables["MANAGEMENT_URI"]
    (folder / "worker.py").write_text(worker)
    live = make(folder, variables, vhost.amqp_uri())
    try:
        yield live
        if not live.ended():
            live.end_daemon()
    finally:
        for record in (folder / "state").rglob("*.json"):
            if (pid := json.loads(record.read_text()).get("pid")) is not None:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
