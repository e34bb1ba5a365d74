"""The broker that a person names: dev.yml on this machine, with a broker that other people use too, over TLS."""

from __future__ import annotations

import dataclasses
import os
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from osrdyne_infra.broker import live
from osrdyne_infra.broker.management import Management
from osrdyne_pool.topology import Users
from testbed.authority import Authority
from testbed.command_line import osrdyne
from testbed.suite import in_make_test
from testbed.tls import TlsBroker
from tests.roles.local_setup import LocalSetup, changed

#: All that has a meaning in addresses, shells, YAML, templates or regular expressions.
AWKWARD = "a:b/c@d%e+f?g#h&i=j k'l\"m\\n$o{{p}}.é"

# In one process, so that only that starts the broker.
pytestmark = pytest.mark.xdist_group("named")


@dataclass
class NamedBroker:
    """A set-up on a broker whose administrator and vhost have difficult names."""

    setup: LocalSetup
    broker: TlsBroker
    vhost: str
    users: Users
    password: str


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def broker(one_version: str, authority: Authority) -> Iterator[TlsBroker]:
    found = TlsBroker(one_version, authority, client_certificates=False)
    with found:
        yield found


@pytest.fixture
def named(broker: TlsBroker, authority: Authority, tmp_path: Path) -> Iterator[NamedBroker]:
    password, vhost = (f"{secrets.token_hex(4)} {AWKWARD}" for _ in range(2))
    admin = vhost.replace(":", "")
    instance = f"O'Brien & Søn's {secrets.token_hex(4)}"
    broker.management.put("users", admin, body={"password": password, "tags": "administrator"})
    who, where = ":".join(quote(part, safe="") for part in (admin, password)), quote(vhost, safe="")
    address = f"amqps://{who}@127.0.0.1:{broker.amqps_port}/{where}?{authority.query()}"
    management = f"https://127.0.0.1:{broker.https_port}"
    variables: dict[str, Any] = {"osrdyne_broker_management": management, "osrdyne_instance": instance}
    variables["daemon_status_names"] = ["daemon.example"]
    setup = LocalSetup(tmp_path / "pool", os.environ, broker=address, variables=variables)
    users = Users.of("airports", instance)
    yield NamedBroker(setup, broker, vhost, users, password)
    setup.close()
    present = {user["name"] for user in broker.management.get("users")}
    for name in present & {admin, *dataclasses.astuple(users)}:
        broker.management.delete("users", name)
    if vhost in {vhost["name"] for vhost in broker.management.get("vhosts")}:
        broker.management.delete("vhosts", vhost)


def test_a_pool_with_awkward_names_on_a_named_broker_with_tls_runs_and_leaves_it_running(
    named: NamedBroker, authority: Authority
) -> None:
    # Given a broker with the user that RabbitMQ makes by itself
    named.broker.management.put("users", "guest", body={"password": "guest", "tags": "administrator"})
    # When the playbook runs with the address of a broker in its environment
    first = named.setup.play("dev")
    # Then it says what is wrong with that user, and leaves it to the broker's owner
    assert "user guest has the password guest" in " ".join(first.split())
    assert named.broker.management.get("users", "guest")
    # And so do the linter and what Pulumi asks first
    assert "default-login" in linted(named)
    assert "user guest has the password guest" in preflight_login(named, authority)
    named.broker.management.put("users", "guest", body={"password": "another word", "tags": "administrator"})
    assert "default-login" not in linted(named)
    assert preflight_login(named, authority) == ""
    named.broker.management.delete("users", "guest")
    # Then the pool answers, from the vhost of that address, with users of its own
    assert named.setup.call("first", b"hello").body == b"HELLO"
    assert named.broker.management.queue(named.vhost, "airports-req-first")
    # By the names that it was given, and by no other
    assert [asked_by(named, name) for name in ("daemon.example", "localhost", "other.example")] == [200, 200, 403]
    permissions = named.broker.management.get("vhosts", named.vhost, "permissions")
    assert {permission["user"] for permission in permissions} >= set(dataclasses.astuple(named.users))
    shown = [first]
    if not in_make_test():  # it takes as long as the first run
        # And a rehearsal finds nothing left to do
        shown.append(named.setup.play("dev", "--check"))
        assert changed(shown[-1]) == 0
    # And the password is not shown
    for text in shown:
        assert named.password not in text
        assert quote(named.password, safe="") not in text
    # And what takes the pool down leaves the broker alone
    named.setup.play("down")
    assert named.broker.management.get("overview")


def asked_by(named: NamedBroker, name: str) -> int:
    """Status of the answer when the daemon is asked for by this name."""
    port = named.setup.ports["status"]
    connection = HTTPConnection("127.0.0.1", port)
    try:
        connection.request("GET", "/healthz", headers={"Host": f"{name}:{port}"})
        return connection.getresponse().status
    finally:
        connection.close()


def linted(named: NamedBroker) -> str:
    """What `osrdyne lint` says of the broker to its administrator."""
    file = named.setup.directory / "admin.management"
    admin = f"{quote(named.broker.admin)}:{quote(named.broker.admin_password)}"
    query = named.setup.broker.partition("?")[2]
    file.write_text(f"https://{admin}@127.0.0.1:{named.broker.https_port}?{query}")
    settings = str(named.setup.directory / "configuration/settings.toml")
    words = ("--settings", settings, "--management", str(file), "--vhost", named.vhost, "--users")
    done = osrdyne("lint", *words)
    assert done.code in (0, 1), done
    return done.out.decode()


def preflight_login(named: NamedBroker, authority: Authority) -> str:
    """What the Pulumi program finds out about guest before it declares anything."""
    url = f"https://127.0.0.1:{named.broker.https_port}"
    broker = Management(url, named.broker.admin, named.broker.admin_password, str(authority.cacertfile))
    return live.read(broker, named.vhost, []).topology.default_login


@pytest.mark.full
def test_a_broker_that_does_not_answer_or_refuses_is_said_so_without_its_password(
    named: NamedBroker, authority: Authority
) -> None:
    # Given an address where nothing listens
    named.setup.broker = "amqp://admin:secret-7@127.0.0.1:1/v"
    silent = named.setup.attempt("dev")
    # Then that is said
    assert silent.returncode
    assert "nothing answers at 127.0.0.1, port 1" in silent.stdout
    # Given a name that the management API cannot take
    named.setup.broker = "amqp://a%3Ab:secret-7@127.0.0.1:1/v"
    assert "holds a colon" in named.setup.attempt("dev").stdout
    # Given a wrong password, and first a certificate that is not trusted yet
    named.setup.broker = f"amqps://{named.broker.admin}:secret-7@127.0.0.1:{named.broker.amqps_port}/v"
    unknown = named.setup.attempt("dev")
    named.setup.broker += f"?{authority.query()}"
    refused = named.setup.attempt("dev")
    # Then that is said
    assert unknown.returncode
    assert "name the file of a private CA by ?cacertfile=/path/of/ca.pem" in unknown.stdout, unknown.stdout
    assert refused.returncode
    assert "wrong password, or without the tag administrator" in refused.stdout, refused.stdout
    assert "secret-7" not in silent.stdout + unknown.stdout + refused.stdout
