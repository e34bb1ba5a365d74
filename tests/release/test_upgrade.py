"""A live pool comes from the release before to this one, and back, while it is called: every call is answered."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from flit_core.wheel import make_wheel_in  # type: ignore[import-untyped]

import release
import setup
import steps
from osrdyne_runtime.settings_text import to_toml
from testbed.distributions import Environment
from testbed.waiting import PATIENCE, until
from tests.conftest import Vhost

pytestmark = [pytest.mark.full, pytest.mark.timeout(1200)]

BEFORE = "0.1.0"
KEYS = 4
#: No reply comes later than that, in seconds, whatever is exchanged.
LATEST = 10.0
#: Says which process answered, and of which environment.
WORKER = """
import os, sys
from osrdyne_worker import run
run(lambda request: f"{os.getpid()} {sys.prefix}".encode())
"""
#: Calls each key again and again until its input ends, and writes who answered and how long it took.
CALLER = """
import json, os, sys, threading, time
from osrdyne_client import Client

ended = threading.Event()

def call(key):
    while not ended.wait(0.02):
        began = time.monotonic()
        try:
            answer = client.call(key, b"", timeout=60).body.decode()
        except Exception as error:
            answer = repr(error)
        print(json.dumps([key, answer, time.monotonic() - began]), flush=True)

with Client(os.environ["AMQP_URI"], "core") as client:
    threads = [threading.Thread(target=call, args=(key,)) for key in sys.argv[1:]]
    for thread in threads:
        thread.start()
    sys.stdin.read()
    ended.set()
    for thread in threads:
        thread.join()
"""


@dataclass(frozen=True)
class Version:
    """A version in an environment, and the tree that it was made of."""

    environment: Environment
    tree: Path

    @property
    def python(self) -> str:
        return self.environment.program("python")


def install(tree: Path, place: Path, *packages: str) -> Version:
    """Make an environment with packages of a tree; what others made is what its lock pins."""
    wheels = place / "wheels"
    wheels.mkdir(parents=True)
    for project in [*tree.glob("packages/*/pyproject.toml"), tree / "daemon/pyproject.toml"]:
        make_wheel_in(project, wheels)
    made = Environment(place / "environment")
    uv = str(steps.BIN / "uv")
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, str(made.place)], check=True)
    where = ["--find-links", str(wheels), "--constraint", str(tree / "requirements.lock")]
    where += ["--python", made.program("python")]
    command = [uv, "pip", "install", "--quiet", *where, *packages]
    subprocess.run(command, check=True, env=steps.environment(**setup.pip_settings()))
    return Version(made, tree)


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Version:
    """The release before this one, of its own commit."""
    place = tmp_path_factory.mktemp("before")
    (place / "tree").mkdir()
    commit = release.commit_of(BEFORE)
    archive = subprocess.run(["git", "archive", commit], cwd=steps.ROOT, check=True, capture_output=True).stdout
    subprocess.run(["tar", "--extract", "--directory", place / "tree"], input=archive, check=True)
    return install(place / "tree", place / "made", "osrdyne", "osrdyne-client", "osrdyne-worker")


@pytest.fixture(scope="module")
def after(tmp_path_factory: pytest.TempPathFactory) -> Version:
    """What is there now."""
    return install(steps.ROOT, tmp_path_factory.mktemp("after"), "osrdyne[status]")


@dataclass
class Answers:
    """What a caller wrote down."""

    lines: list[tuple[str, str, float]] = field(default_factory=list)

    def workers(self) -> dict[str, list[str]]:
        """The workers that answered each key, in their order."""
        found: dict[str, list[str]] = {}
        for key, answer, _ in self.lines:
            if answer not in (seen := found.setdefault(key, [])):
                seen.append(answer)
        return found


@dataclass
class LivePool:
    """A pool with its daemon, and callers of both versions, each with keys of its own."""

    folder: Path
    variables: dict[str, str]
    daemon: subprocess.Popen[bytes] | None = None
    started: int = 0

    def declare(self, version: Version) -> None:
        """Declare the pool's exchanges, queues and policies, as that version has them."""
        declare = version.tree / "examples/quickstart/declare_pool.py"
        subprocess.run([version.python, declare, "core"], env=self.variables, cwd=self.folder, check=True)

    def settings(self, workers: Version) -> None:
        """Have workers started of a version."""
        pool = {"name": "core", "unbind_delay": 600, "stop_delay": 600}
        template = {"command": [workers.python, str(self.folder / "worker.py")]}
        driver = {"kind": "subprocess", "state_directory": str(self.folder / "state"), "template": template}
        text = to_toml({"pool": pool, "driver": driver, "status": {"port": 0}})
        (self.folder / "settings.toml").write_text(text)

    def exchange_daemon(self, version: Version) -> None:
        """End the daemon as a service manager does, and start one of a version."""
        self.end_daemon()
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
            assert self.daemon.wait(timeout=PATIENCE) == 0

    @contextmanager
    def called(self, version: Version) -> Iterator[Answers]:
        """Have a client of a version call keys until the end of the context; then all its answers are there."""
        answers = Answers()
        keys = [f"{version.environment.place.parent.name}-{number}" for number in range(KEYS)]
        file = self.folder / f"{keys[0]}.jsonl"
        with file.open("wb") as output:
            command = [version.python, str(self.folder / "caller.py"), *keys]
            caller = subprocess.Popen(command, env=self.variables, stdin=subprocess.PIPE, stdout=output)
        try:
            until(lambda: {json.loads(line)[0] for line in file.read_text().splitlines()} == {*keys}, what="answers")
            yield answers
        finally:
            assert caller.stdin is not None
            caller.stdin.close()
            assert caller.wait(timeout=90) == 0
            answers.lines += [tuple(json.loads(line)) for line in file.read_text().splitlines()]

    def answered_by(self, workers: Version) -> Callable[[], bool]:
        """Whether the last answer of each key is of a version."""

        def all_are() -> bool:
            last = {}
            for file in self.folder.glob("*.jsonl"):
                for line in file.read_text().splitlines():
                    key, answer, _ = json.loads(line)
                    last[key] = answer
            return all(answer.endswith(f" {workers.environment.place}") for answer in last.values())

        return all_are


@pytest.fixture
def pool(vhost: Vhost, tmp_path: Path) -> Iterator[LivePool]:
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
    (tmp_path / "worker.py").write_text(WORKER)
    (tmp_path / "caller.py").write_text(CALLER)
    live = LivePool(tmp_path, variables)
    yield live
    if not live.ended():
        live.end_daemon()
    for record in (tmp_path / "state").rglob("*.json"):
        if (pid := json.loads(record.read_text()).get("pid")) is not None:
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("first", ["daemon", "workers"])
def test_a_live_pool_is_upgraded_and_downgraded_by_hand_and_every_call_is_answered(
    pool: LivePool, before: Version, after: Version, first: str
) -> None:
    pool.declare(before)
    pool.settings(before)
    pool.exchange_daemon(before)
    with pool.called(before) as of_before, pool.called(after) as of_after:
        # To this version: what is declared comes first, and the order of the rest does not matter
        pool.declare(after)
        for daemon, workers in [(after, before) if first == "daemon" else (before, after), (after, after)]:
            pool.settings(workers)
            pool.exchange_daemon(daemon)
            until(pool.answered_by(workers), what="answers of the new workers")
        # And back, in the other order
        for daemon, workers in [(before, after) if first == "daemon" else (after, before), (before, before)]:
            pool.settings(workers)
            pool.exchange_daemon(daemon)
            until(pool.answered_by(workers), what="answers of the old workers")
        pool.declare(before)

    for answers in (of_before, of_after):
        assert max(seconds for *_, seconds in answers.lines) < LATEST
        # Each key had one worker of each kind, and the first one's successor: none was restarted without need
        kinds = {key: [Path(worker.split()[1]) for worker in seen] for key, seen in answers.workers().items()}
        places = [before.environment.place, after.environment.place, before.environment.place]
        assert kinds == dict.fromkeys(kinds, places)
        assert len(kinds) == KEYS
