"""`make up` on a Debian 13 without systemd: its rehearsal, and the distribution's broker, which lets no stranger in."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from testbed.docker import engine
from testbed.waiting import until
from tests.roles.local_setup import changed
from tests.roles.machine import CHECKOUT, Machine, machine

pytestmark = [pytest.mark.full, pytest.mark.xdist_group("machines"), pytest.mark.timeout(900)]

#: Variables of the playbook, on the machine.
VARIABLES = "/tmp/variables.json"
#: What the management API says to guest with the password guest: the status code.
GUEST = """
import base64, urllib.error, urllib.request
request = urllib.request.Request("http://127.0.0.1:15672/api/whoami")
request.add_header("Authorization", "Basic " + base64.b64encode(b"guest:guest").decode())
try:
    print(urllib.request.urlopen(request).status)
except urllib.error.HTTPError as error:
    print(error.code)
"""
#: Opens more connections than a process with 1,024 files can have, and sees that the last one is served.
CROWD = """
import socket
connections = [socket.create_connection(("127.0.0.1", 5672)) for _ in range(1100)]
connections[-1].settimeout(20)
connections[-1].sendall(b"AMQP\\0\\0\\x09\\x01")
print("served" if connections[-1].recv(1) else "closed")
"""


@pytest.fixture
def debian() -> Iterator[Machine]:
    with engine() as docker, machine(docker, "trixie") as found:
        yield found


def run(debian: Machine, *command: str) -> str:
    """Output of a command of root's, which must succeed."""
    done = debian.run(*command, user="root")
    assert done.returncode == 0, done.stdout[-4000:]
    return done.stdout


def listening(debian: Machine) -> dict[int, str]:
    """The address of each port on which something listens for other programs, without those of Docker."""
    lines = run(debian, "ss", "--no-header", "--listening", "--tcp", "--numeric").splitlines()
    places = [line.split()[3].rpartition(":") for line in lines]
    return {int(port): host for host, _, port in places if host not in ("127.0.0.1", "[::1]")}


def up(debian: Machine) -> int:
    """Run `make up` from a shell with the usual limit of open files; how much it changed."""
    return changed(run(debian, "sh", "-c", f"ulimit -S -n 1024; make up PLAY='-e @{VARIABLES}'"))


def assert_closed(debian: Machine) -> None:
    """Only the role's users can connect, only from this machine, and only as many at once as there may be."""
    assert run(debian, "python3", "-c", GUEST).strip() == "401"
    assert "guest" not in run(debian, "rabbitmqctl", "--quiet", "list_users")
    assert listening(debian) == {}
    assert run(debian, "sh", "-c", f"ulimit -n 2000; python3 -c '{CROWD}'").strip() == "served"
    called = ("call", "--pool", "airports", "--broker-file", "/etc/osrdyne/airports/client.uri", "first", "hello")
    assert run(debian, ".venv/bin/osrdyne", *called).strip() == "HELLO"


@pytest.fixture
def prepared(debian: Machine) -> Machine:
    """A machine on which the pool answers in capitals."""
    variables = {"osrdyne_worker_command": [f"{CHECKOUT}/.venv/bin/python", f"{CHECKOUT}/examples/echo_worker.py"]}
    run(debian, "sh", "-c", f"echo '{json.dumps(variables)}' > {VARIABLES}")
    return debian


def left(debian: Machine) -> str:
    """Packages, accounts, and what a playbook makes: what a rehearsal must leave as it is."""
    listed = "dpkg-query --show; getent passwd; find /etc /opt /var/lib/osrdyne -newer /tmp/before -type f"
    return run(debian, "sh", "-c", f"[ -e /tmp/before ] || touch /tmp/before; {listed}")


def test_a_rehearsal_on_a_new_machine_says_what_it_would_change_and_changes_nothing(debian: Machine) -> None:
    run(debian, "make", "setup")
    before = left(debian)
    # When `make up` is rehearsed where nothing is installed yet
    assert changed(run(debian, "make", "up", "PLAY=--check")) > 5
    # Then nothing is installed still, not even what Ansible would read package lists by
    assert left(debian) == before


def test_a_new_broker_is_closed_from_its_first_start_on(prepared: Machine) -> None:
    # When the playbook runs
    assert up(prepared)
    # Then the broker lets in its users and no others, and has a name that does not change with the machine's
    assert_closed(prepared)
    assert run(prepared, "rabbitmqctl", "--quiet", "eval", "node().").strip() == "rabbit@localhost"
    # And another run has nothing left to do
    assert up(prepared) == 0


def test_a_broker_that_was_there_is_closed_and_keeps_its_data_and_its_name(prepared: Machine) -> None:
    # Given the package as it starts by itself, with an account that a person made
    run(prepared, "apt-get", "update")
    run(prepared, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "install", "--yes", "rabbitmq-server")
    if prepared.run("rabbitmqctl", "--quiet", "ping", user="root").returncode:
        run(prepared, "rabbitmq-server", "-detached")
    until(lambda: prepared.run("rabbitmqctl", "--quiet", "await_startup", user="root").returncode == 0)
    run(prepared, "rabbitmqctl", "--quiet", "add_user", "person", "word")
    run(prepared, "rabbitmqctl", "--quiet", "authenticate_user", "guest", "guest")
    name = run(prepared, "rabbitmqctl", "--quiet", "eval", "node().")
    assert listening(prepared).keys() >= {4369, 25672}
    # When the playbook runs
    assert up(prepared)
    # Then it lets in its users and no others, and has what it had
    assert_closed(prepared)
    assert "person" in run(prepared, "rabbitmqctl", "--quiet", "list_users")
    assert run(prepared, "rabbitmqctl", "--quiet", "eval", "node().") == name
    # And another run has nothing left to do
    assert up(prepared) == 0
    # And so it is after a stop and a start
    run(prepared, "make", "down")
    assert listening(prepared) == {}
    up(prepared)
    assert_closed(prepared)
