"""Apache Qpid Broker-J for tests of the bus: AMQP 1.0 only, in memory, with a virtual host for each test."""

from __future__ import annotations

import base64
import json
import secrets
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from testbed.java_server import JavaServer
from testbed.maven import Archive, unpacked

ARCHIVE = Archive(
    "org.apache.qpid",
    "apache-qpid-broker-j",
    "9.2.0",
    "047cc4241b2453082870d39942b9a7661b0139acfd9580362392cae2c4fd16a5",
)
#: How often a queue gives a message to a receiver. One that is rejected, or that comes back with its link, counts.
ATTEMPTS = 5
#: Queues that the bus attaches to are made when it does; see docs/howto/bus-peers.md.
POLICY = {
    "pattern": r"(unicast|exclusive|notify)\..*",
    "nodeType": "Queue",
    "createdOnPublish": True,
    "createdOnConsume": True,
    "attributes": {"maximumDeliveryAttempts": ATTEMPTS},
}


def program() -> Path:
    """Return the folder of the program, fetched unless it is there. Raises maven.NotFetched and apt.NotInstalled."""
    (found,) = unpacked(ARCHIVE).glob("*/*/")
    return found


class BrokerJ(JavaServer):
    """One broker. Its management is by HTTP."""

    def __init__(self) -> None:
        super().__init__("broker-j")
        self._management = self._ports.first + 1

    def configure(self) -> list[str]:
        # Its provider `Plain` has passwords in clear text, and so offers PLAIN and SCRAM alike.
        login = {
            "name": "users",
            "type": "Plain",
            "secureOnlyMechanisms": "[]",
            "users": [{"name": self.user, "type": "managed", "password": self.password}],
        }
        local = {"bindingAddress": "127.0.0.1", "authenticationProvider": "users"}
        port = {
            "name": "AMQP",
            "port": str(self.port),
            "protocols": ["AMQP_1_0"],
            "virtualhostaliases": [{"name": "nameAlias", "type": "nameAlias"}],
        }
        management = {"name": "HTTP", "port": str(self._management), "protocols": ["HTTP"]}
        rule = {"name": "all", "type": "NameAndLevel", "level": "WARN", "loggerName": "ROOT"}
        configuration = {
            "name": "tests",
            "modelVersion": "9.0",
            "authenticationproviders": [login],
            "ports": [{**port, **local}, {**management, **local}],
            "brokerloggers": [{"name": "console", "type": "Console", "brokerloginclusionrules": [rule]}],
            "plugins": [{"type": "MANAGEMENT-HTTP", "name": "http", "httpBasicAuthenticationEnabled": "true"}],
        }
        file = self.directory / "config.json"
        file.write_text(json.dumps(configuration))
        work = ["-prop", f"qpid.work_dir={self.directory / 'work'}", "-icp", str(file), "-st", "Memory"]
        return [f"-Djava.io.tmpdir={self.directory}", "-cp", f"{program()}/lib/*", "org.apache.qpid.server.Main", *work]

    def answers(self) -> bool:
        try:
            return bool(self.ask("GET", "broker"))
        except OSError:
            return False

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """Have the broker's management do something, and return what it says."""
        login = base64.b64encode(f"{self.user}:{self.password}".encode()).decode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{self._management}/api/latest/{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Basic {login}", "Content-Type": "application/json"},
        )
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=30) as answer:
                text = answer.read()
        except urllib.error.HTTPError as error:
            raise RuntimeError(f"Broker-J refused {method} {path}: {error.read().decode(errors='replace')}") from error
        return json.loads(text) if text else None

    def add_virtual_host(self) -> str:
        """Make an empty virtual host, and return its name."""
        name = f"test-{secrets.token_hex(6)}"
        initial = json.dumps({"type": "Memory", "nodeAutoCreationPolicies": [POLICY]})
        self.ask("PUT", f"virtualhostnode/{name}", {"type": "Memory", "virtualHostInitialConfiguration": initial})
        return name

    def remove_virtual_host(self, name: str) -> None:
        """Remove a virtual host, with all that is in it."""
        self.ask("DELETE", f"virtualhostnode/{name}")

    def queues(self, virtual_host: str) -> list[str]:
        """Return the names of all queues of a virtual host."""
        return [queue["name"] for queue in self.ask("GET", f"queue/{virtual_host}/{virtual_host}")]
