"""The playbook on a machine where another process has the port of the daemon's status, and answers there."""

from __future__ import annotations

import dataclasses
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from osrdyne_pool.topology import Users
from testbed.waiting import until
from tests.conftest import Vhost
from tests.roles.local_setup import LocalSetup

# Its runs of the playbook take a minute; what they say of each case is in test_wait_ready.
pytestmark = pytest.mark.full

#: Says that it is ready, whatever it is asked.
FOREIGN = """
import http.server, sys
class Ready(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"ready")
server = http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Ready)
print("listening", flush=True)
server.serve_forever()
"""


@pytest.fixture
def setup(vhost: Vhost, tmp_path: Path) -> Iterator[LocalSetup]:
    broker, instance = vhost.broker, secrets.token_hex(4)
    variables = {"osrdyne_broker_management": broker.management_url, "osrdyne_instance": instance}
    made = LocalSetup(tmp_path / "pool", os.environ, broker=vhost.amqp_uri(), variables=variables)
    yield made
    made.close()
    for name in dataclasses.astuple(Users.of("airports", instance)):
        broker.management.delete("users", name)


@pytest.fixture
def foreign(setup: LocalSetup) -> Iterator[subprocess.Popen[str]]:
    port = str(setup.ports["status"])
    with subprocess.Popen([sys.executable, "-c", FOREIGN, port], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


def test_the_play_fails_with_the_process_that_has_the_port_and_goes_on_once_it_is_gone(
    setup: LocalSetup, foreign: subprocess.Popen[str]
) -> None:
    port, log = setup.ports["status"], setup.directory / "state/daemon.log"
    # When the playbook starts a daemon that cannot have its port
    refused = setup.attempt("dev")
    # Then it fails, and names the process, the daemon's own words and what to do
    assert refused.returncode, refused.stdout[-3000:]
    said = " ".join(refused.stdout.split())
    assert f"process {foreign.pid} " in said, said[-3000:]
    assert f"cannot listen on 127.0.0.1:{port}" in said, said[-3000:]
    assert "Stop that process, or choose another port" in said, said[-3000:]
    # When the process is gone
    foreign.kill()
    until(lambda: foreign.poll() is not None, what="end of the process")
    # Then a run succeeds, and the pool answers
    setup.play("dev")
    assert setup.call("first", b"hello").body == b"HELLO"
    assert log.read_text().count("cannot listen") == 1
