"""No password is anywhere but in credential files and in the environment of who uses it: a pool's life, searched."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import secrets
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pika
import pytest

from osrdyne_client import Client, RemoteError
from osrdyne_pool.broker.management import ManagementRefused
from testbed.broker import Broker
from testbed.command_line import osrdyne
from testbed.pool import DaemonProcess, Pool
from testbed.waiting import until

#: A worker that logs all that its libraries say.
CHATTY = """
import logging, sys
logging.basicConfig(level=logging.DEBUG)
logging.getLogger("pika").setLevel(logging.DEBUG)
from osrdyne_worker.service import run
from testbed.library_worker import handle
run(handle)
"""


@dataclass
class Search:
    """Places with what they hold, and passwords that may be in none of them."""

    passwords: dict[str, str]
    places: dict[str, bytes] = field(default_factory=dict)

    def take(self, place: str, content: str | bytes) -> None:
        """Keep what a place holds now, beside what it held before."""
        data = content.encode() if isinstance(content, str) else content
        self.places[place] = self.places.get(place, b"") + data

    def take_files(self, directory: Path) -> None:
        for path in directory.rglob("*"):
            if path.is_file() and path.suffix != ".uri":
                self.take(f"file {path.relative_to(directory)}", path.read_bytes())
                self.take("file names", str(path))

    def take_processes(self, may_have: Callable[[str, dict[str, str]], bool]) -> None:
        """Command lines of all processes, and environments of those that may not have a password."""
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                self.take(f"command line of {entry.name}", (entry / "cmdline").read_bytes())
                variables = (entry / "environ").read_bytes().decode(errors="replace").split("\0")
            except OSError:
                continue
            environ = dict(variable.partition("=")[::2] for variable in variables)
            for name, value in environ.items():
                if not may_have(name, environ):
                    self.take(f"environment of {entry.name}", f"{name}={value}\n")

    def found(self) -> set[tuple[str, str]]:
        """Places and whose password they hold: as it is, percent-encoded (its middle is the same), or in base64."""
        hits = set()
        for user, password in self.passwords.items():
            core = password.split(":")[1].encode()
            forms = [core, *(base64.b64encode(pad + core)[4:-4] for pad in (b"", b"a", b"ab"))]
            hits |= {(place, user) for place, data in self.places.items() if any(form in data for form in forms)}
        return hits


class SecretPool(Pool):
    """A pool whose passwords are known by sight, and need percent-encoding."""

    def apply(self) -> None:
        self.passwords = {name: f"pass:{secrets.token_hex(16)}:wörd%" for name in self.passwords}
        super().apply()


@contextmanager
def eavesdropping(pool: Pool) -> Iterator[Callable[[], str]]:
    """All that goes through the activity exchange: the call returns what came since the last one."""
    with pika.BlockingConnection(pika.URLParameters(pool.broker.amqp_uri(vhost=pool.vhost))) as connection:
        channel = connection.channel()
        channel.queue_declare("ear", durable=True)
        channel.queue_bind("ear", pool.names.activity_exchange)

    def heard() -> str:
        texts: list[str] = []
        with pika.BlockingConnection(pika.URLParameters(pool.broker.amqp_uri(vhost=pool.vhost))) as connection:
            channel = connection.channel()
            while True:
                method, properties, body = channel.basic_get("ear", auto_ack=True)
                if method is None:
                    return "\n".join(texts)
                texts.append(f"{method} {properties} {body!r}")

    yield heard


def wrong_password(pool: Pool, daemon: DaemonProcess) -> None:
    """The daemon is thrown out, refused, and let in again."""
    api, user = pool.broker.management, pool.users.daemon
    api.put("users", user, body={"password": "another", "tags": "management"})
    for connection in until(lambda: [c for c in api.get("connections") if c["user"] == user]):
        # The daemon ends the one for its events when it loses the other.
        with contextlib.suppress(ManagementRefused):
            api.delete("connections", connection["name"])
    daemon.wait_for("waiting")
    for command in (["lint", "--live", "--settings", str(daemon.directory / "settings.toml")],):
        assert osrdyne(*command).code == 2


def look(search: Search, pool: Pool, daemon: DaemonProcess) -> None:
    """Take in everything that can be seen from outside now."""
    for path in ("/status", "/metrics", "/healthz"):
        search.take(f"daemon {path}", daemon.get(path))
    own_uri = pool.users.worker

    def may_have(name: str, environ: dict[str, str]) -> bool:
        return name == "WORKER_AMQP_URI" and own_uri in environ[name]

    search.take_processes(may_have)
    for what in ("connections", "channels", "consumers", "queues", "exchanges", "bindings"):
        search.take(f"broker's {what}", json.dumps(pool.broker.management.get(what)))


def test_no_password_is_found_anywhere_in_a_pools_life_and_planted_ones_are(
    private_broker: Broker, make_daemon: Callable[..., DaemonProcess], tmp_path: Path
) -> None:
    broker = private_broker
    pool = SecretPool.on(broker, "/", message_ttl=3.0)
    daemon = make_daemon(
        pool,
        worker=[sys.executable, "-c", CHATTY],
        environment={"PYTHONDONTWRITEBYTECODE": "1"},
        start=False,
    )
    daemon.arguments = ["--verbose"]
    daemon.start()
    search = Search(dict(pool.passwords))
    commands = daemon.directory / "commands.log"
    (daemon.directory / "client.uri").write_text(pool.client_uri)
    with eavesdropping(pool) as heard, Client(pool.client_uri, "core") as client:
        # Requests, and errors of every kind
        assert client.call("a", b"x", timeout=60).body == b"a|x"
        for body in (b"error", b"reject"):
            with pytest.raises(RemoteError) as caught:
                client.call("a", body, timeout=60)
            search.take("error replies", f"{caught.value!r} {caught.value.headers}")
        look(search, pool, daemon)
        # A refused log-in, of the daemon and of a command
        wrong_password(pool, daemon)
        look(search, pool, daemon)
        bad = pool.client_uri.replace(pool.users.client, "unknown")
        done = osrdyne("call", "--pool", "core", "a", variables={"OSRDYNE_CLIENT_URI": bad})
        commands.write_text(done.err + done.out.decode())
        assert done.code == 2
        user = pool.users.daemon
        broker.management.put("users", user, body={"password": pool.passwords[user], "tags": "management"})
        daemon.wait_for("leading")
        # A broker that goes away
        broker.stop()
        daemon.wait_for("waiting")
        search.take("daemon /status", daemon.get("/status"))
        broker.start()
        daemon.wait_for("leading")
        assert client.call("b", b"x", timeout=60).body == b"b|x"
        look(search, pool, daemon)
        search.take("activity", heard())
        search.take_files(daemon.directory)
        search.take("broker's log", (broker.directory / "log/broker.log").read_bytes())

        # Then nothing was found, where there was something to be found in
        assert search.found() == set()
        assert {"daemon /status", "daemon /metrics", "activity", "file daemon-1.log", "error replies"} <= set(
            search.places
        )
        assert b"pika" in search.places["file daemon-1.log"]
        assert b"request-received" in search.places["activity"]
        assert any(place.startswith("file state/") and b"pika" in data for place, data in search.places.items())
        assert any(place.startswith("file state/") and place.endswith(".json") for place in search.places)
        assert modes(daemon.directory) == {0o600}

        # And what is planted is found
        plant(search, pool, daemon.directory)
        search.take("activity", heard())
    users = pool.users
    found = {(place.rpartition(" ")[0] if "of" in place else place, user) for place, user in search.found()}
    assert found == {
        ("file planted.log", users.worker),
        ("file encoded.log", users.monitor),
        ("activity", users.client),
        ("command line of", users.daemon),
        ("environment of", users.operator),
    }


def modes(directory: Path) -> set[int]:
    return {stat.S_IMODE(path.stat().st_mode) for path in directory.glob("*.uri") if path.name != "client.uri"}


def plant(search: Search, pool: Pool, directory: Path) -> None:
    """Put a password into a file as it is, into one in base64, an event, a command line and an environment."""
    of: dict[str, str] = pool.passwords
    users: Any = pool.users
    (directory / "planted.log").write_text(f"error: cannot log in as {pool.uri(users.worker)}")
    (directory / "encoded.log").write_bytes(base64.b64encode(f"{users.monitor}:{of[users.monitor]}".encode()))
    with pika.BlockingConnection(pika.URLParameters(pool.broker.amqp_uri(vhost=pool.vhost))) as connection:
        properties = pika.BasicProperties(headers={"x-event": "started", "uri": pool.client_uri})
        connection.channel().basic_publish(pool.names.activity_exchange, "a", b"", properties)
    sleeping = [
        subprocess.Popen(["sleep", "60"], env={**os.environ, "X": of[users.operator]}),
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", of[users.daemon]]),
    ]
    try:
        until(lambda: all(Path(f"/proc/{process.pid}/cmdline").read_bytes() for process in sleeping))
        search.take_processes(lambda name, environ: name == "WORKER_AMQP_URI")
    finally:
        for process in sleeping:
            process.kill()
            process.wait()
    search.take_files(directory)
