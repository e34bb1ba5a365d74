"""The role `relay` on this machine: a node and its Redis, without systemd, in a directory of the test's own."""

from __future__ import annotations

import dataclasses
import getpass
import json
import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import redis

from osrdyne_pool.topology import Users
from osrdyne_relay import Request
from osrdyne_relay.client import RelayClient
from osrdyne_relay.http.access import sha256_of
from osrdyne_relay.redis import server as redis_server
from osrdyne_relay.worker import RelayRequest
from testbed.authority import Authority
from testbed.ports import PortBlock
from testbed.redis import RedisServer
from testbed.s3.server import S3Server
from tests.conftest import Vhost
from tests.relay.http_nodes import working_in_thread
from tests.roles import local_setup
from tests.roles.local_setup import LocalSetup, changed

WORKER, CALLER = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
CLIENTS = {
    "lax": {"token_sha256": sha256_of(WORKER), "serve": ["maps/LAX"]},
    "web": {"token_sha256": sha256_of(CALLER), "call": ["maps/*"]},
}
#: Each has a meaning in addresses, shells, templates or YAML.
AWKWARD = "a:b/c@d%e+f?g#h&i=j'l\"m{p}"


class Relay:
    """A play with the role."""

    def __init__(self, directory: Path) -> None:
        self.directory, self._block = directory, PortBlock()
        self.redis_port, self.port = self._block.first, self._block.first + 1
        self.variables: dict[str, Any] = {
            "relay_clients": CLIENTS,
            "relay_settings": {"serve": {"port": self.port}},
            "relay_redis_port": self.redis_port,
            "relay_python": sys.executable,
            "relay_user": getpass.getuser(),
            "relay_configuration_directory": str(directory / "configuration"),
            "relay_state_directory": str(directory / "state"),
            "service_systemd": {"stat": {"exists": False}},
        }

    def attempt(self, *arguments: str, tasks_from: str = "main") -> tuple[int, str]:
        """Exit status and output of a play."""
        tasks = [{"ansible.builtin.import_role": {"name": "osrdyne.pool.relay", "tasks_from": tasks_from}}]
        play = [{"hosts": "localhost", "gather_subset": ["!all"], "become": True, "tasks": tasks}]
        (self.directory / "play.json").write_text(json.dumps(play))
        (self.directory / "variables.json").write_text(json.dumps(self.variables))
        command = [f"{Path(sys.executable).parent}/ansible-playbook", str(self.directory / "play.json")]
        command += ["-e", f"@{self.directory / 'variables.json'}", *arguments]
        done = local_setup.run(command, env={**os.environ, "ANSIBLE_NOCOLOR": "1", "LC_ALL": "C.UTF-8"}, timeout=240)
        return done.returncode, done.stdout

    def play(self, *arguments: str, tasks_from: str = "main") -> str:
        """Output of a play that succeeds."""
        code, said = self.attempt(*arguments, tasks_from=tasks_from)
        assert code == 0, said[-6000:]
        return said

    def process(self, name: str) -> int:
        """Number of a process, 0 for one that has ended."""
        file = self.directory / f"state/{name}.pid"
        number = int(file.read_text()) if file.exists() else 0
        return number if number and Path(f"/proc/{number}").exists() else 0

    def close(self) -> None:
        """Leave no process behind."""
        if self.process("node") or self.process("redis"):
            self.attempt(tasks_from="stop")
        self._block.release()


@pytest.fixture
def relay(tmp_path: Path) -> Iterator[Relay]:
    made = Relay(tmp_path)
    yield made
    made.close()


def answered(request: RelayRequest) -> bytes:
    for name, stream in request.streams.items():
        request.send_stream(name, map(bytes.upper, stream))
    return b"answer to " + request.body


@contextmanager
def worker(relay: Relay, *, ca_file: Path | None = None) -> Iterator[None]:
    """A worker that polls for LAX at the node. It answers with the streams that it got, in capitals."""
    scheme = "https" if ca_file else "http"
    url = f"{scheme}://127.0.0.1:{relay.port}"
    with working_in_thread(url, "maps/LAX", answered, token=WORKER, ca_file=ca_file):
        yield


def call(relay: Relay, *, ca_file: Path | None = None) -> bytes:
    """The answer of LAX."""
    scheme = "https" if ca_file else "http"
    with RelayClient(f"{scheme}://127.0.0.1:{relay.port}", token=CALLER, ca_file=ca_file) as client:
        return client.call("maps/LAX", b"hello", timeout=60).body


@pytest.mark.full
def test_a_rehearsal_changes_nothing_and_after_a_run_worker_and_caller_meet_at_the_node(relay: Relay) -> None:
    assert changed(relay.play("--check")) > 5
    assert not (relay.directory / "configuration").exists()
    assert not (relay.directory / "state").exists()

    relay.play()

    with worker(relay):
        assert call(relay) == b"answer to hello"
    assert changed(relay.play()) == 0
    # And Redis lets in who has the password that was made, and keeps it to itself
    word = (relay.directory / "configuration/passwords/osrdyne-relay.password").read_text()
    with pytest.raises(redis.AuthenticationError), redis.Redis(port=relay.redis_port, protocol=2) as stranger:
        stranger.ping()
    for name in ("redis.acl", "redis.conf", "relay.toml", "access.toml"):
        file = relay.directory / "configuration" / name
        assert word not in file.read_text()
        assert file.stat().st_mode & 0o777 == 0o600
    processes = relay.process("node"), relay.process("redis")
    assert not any(word.encode() in Path(f"/proc/{process}/cmdline").read_bytes() for process in processes)
    # And a rehearsal of another setting names one change, and makes none
    relay.variables["relay_settings"]["most_bytes"] = 2048
    assert changed(relay.play("--check", "--diff")) == 1
    assert processes == (relay.process("node"), relay.process("redis"))
    assert "2048" not in (relay.directory / "configuration/relay.toml").read_text()
    # And it keeps nothing on disk
    relay.play(tasks_from="stop")
    assert (relay.process("node"), relay.process("redis")) == (0, 0)
    assert {path.name for path in (relay.directory / "state").iterdir()} == {"node.log", "redis.log"}


@pytest.mark.full
def test_what_changes_restarts_what_reads_it_and_a_mistake_never_lands(relay: Relay) -> None:
    relay.play()
    node, server = relay.process("node"), relay.process("redis")

    # What is of Redis restarts Redis, and not the node, which reads its access file again by itself
    relay.variables["relay_clients"] = {"web": CLIENTS["web"]}
    relay.variables["relay_redis_settings"] = {"maxclients": 500}
    relay.play()
    assert relay.process("node") == node
    assert relay.process("redis") not in (0, server)
    # What else is of the node restarts the node, and not Redis
    server = relay.process("redis")
    relay.variables["relay_settings"]["timings"] = {"retry_for": 10}
    relay.play()
    assert relay.process("node") not in (0, node)
    assert relay.process("redis") == server
    # A mistake is named, and what was there stays
    access, settings = (relay.directory / f"configuration/{name}.toml" for name in ("access", "relay"))
    for variable, wrong, named, file in (
        ("relay_clients", {"web": {"cal": ["maps/*"]}}, "clients.web.cal", access),
        ("relay_settings", {"most_byte": 1}, "relay.most_byte", settings),
    ):
        before, right = file.read_text(), relay.variables[variable]
        relay.variables[variable] = wrong
        code, said = relay.attempt()
        assert code
        assert named in said, said[-3000:]
        assert file.read_text() == before
        relay.variables[variable] = right


@pytest.mark.full
def test_a_node_with_tls_uses_a_redis_that_is_elsewhere(relay: Relay, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca")
    own = authority.issue("server", addresses=["127.0.0.1"])
    with RedisServer() as elsewhere:
        rules = redis_server.rules("trains").split()
        elsewhere.run("ACL", "SETUSER", "trains", "on", f">{AWKWARD}", *rules)
        tls = {"certificate_file": str(own.certfile), "key_file": str(own.keyfile)}
        address = f"redis://trains:{quote(AWKWARD, safe='')}@127.0.0.1:{elsewhere.port}/0"
        relay.variables |= {
            "relay_redis": address,
            "relay_settings": {"prefix": "trains", "serve": {"port": relay.port, **tls}},
        }
        said = relay.play("-vvv")

        with worker(relay, ca_file=authority.cacertfile):
            assert call(relay, ca_file=authority.cacertfile) == b"answer to hello"
        assert changed(relay.play()) == 0
        assert relay.process("redis") == 0
        assert quote(AWKWARD, safe="") not in said
        assert AWKWARD not in said
        relay.play(tasks_from="stop")


@pytest.mark.full
def test_data_streams_are_in_a_bucket_whose_keys_the_role_writes(relay: Relay, tmp_path: Path) -> None:
    with S3Server() as server:
        given = server.settings()
        keys = [Path(given.pop(name)).read_text().strip() for name in ("access_key_file", "secret_key_file")]
        relay.variables["relay_settings"]["streams"] = {"s3": given}
        relay.variables["relay_s3_access_key"] = keys[0]
        code, said = relay.attempt()
        assert code
        assert "go together: give all or none" in " ".join(said.split())
        relay.variables["relay_s3_secret_key"] = keys[1]
        said = relay.play("-vvv")

        assert not any(key in said for key in keys)
        files = [relay.directory / f"configuration/s3.{name}-key" for name in ("access", "secret")]
        assert [file.stat().st_mode & 0o777 for file in files] == [0o600, 0o600]
        assert [file.read_text().strip() for file in files] == keys
        with worker(relay), RelayClient(f"http://127.0.0.1:{relay.port}", token=CALLER) as client:
            sent = Request(b"map", streams={"map": [b"a map"]})
            with client.call("maps/LAX", sent, timeout=60) as response:
                assert b"".join(response.streams["map"]) == b"A MAP"
        assert changed(relay.play()) == 0
        relay.play(tasks_from="stop")


@pytest.mark.full
def test_a_node_that_cannot_have_its_port_says_who_has_it(relay: Relay) -> None:
    with socket.create_server(("127.0.0.1", relay.port)):
        code, said = relay.attempt()

    assert code
    said = " ".join(said.split())
    assert f"process {os.getpid()} " in said, said[-3000:]
    assert "and not to the node" in said
    assert f"cannot listen on 127.0.0.1, port {relay.port}" in said


@pytest.mark.full
def test_the_keys_of_a_pool_are_served_by_workers_that_poll(one_vhost: Vhost, tmp_path: Path) -> None:
    broker, instance, block = one_vhost.broker, secrets.token_hex(4), PortBlock()
    clients = {"lax": {"token_sha256": sha256_of(WORKER), "serve": ["airports/LAX"]}}
    variables = {
        "osrdyne_broker_management": broker.management_url,
        "osrdyne_instance": instance,
        "osrdyne_relay_clients": clients,
        "osrdyne_relay_settings": {"serve": {"port": block.first}},
        "osrdyne_relay_configuration_directory": str(tmp_path / "relay"),
        "osrdyne_relay_state_directory": str(tmp_path / "relay-state"),
        "osrdyne_workers_poll": True,
        "relay_redis_port": block.first + 1,
    }
    setup = LocalSetup(tmp_path / "pool", os.environ, broker=one_vhost.amqp_uri(), variables=variables)
    script = f"""
from osrdyne_relay.worker import RelayWorker
node = "http://127.0.0.1:{block.first}"
RelayWorker(node, "airports/LAX", lambda request: request.body.upper(), token="{WORKER}").run()
"""
    try:
        setup.play("dev")
        with subprocess.Popen([sys.executable, "-c", script]) as polling:
            try:
                assert setup.call("LAX", b"hello").body == b"HELLO"
            finally:  # or a test that fails would wait for the worker without an end
                polling.terminate()
        assert changed(setup.play("dev")) == 0
        setup.play("down")
        assert not (tmp_path / "relay-state/node.pid").exists()
    finally:
        setup.close()
        block.release()
        for name in dataclasses.astuple(Users.of("airports", instance)):
            broker.management.delete("users", name)
