"""Apache ActiveMQ Artemis for tests of the bus: AMQP 1.0 only, with nothing on disk but what it is configured by."""

from __future__ import annotations

import json
import socket
from contextlib import closing
from pathlib import Path
from typing import Any

from testbed.java_server import JavaServer
from testbed.maven import Archive, unpacked

ARCHIVE = Archive(
    "org.apache.activemq",
    "apache-artemis",
    "2.40.0",
    "3add67e7b0af89f81eac1e6c577427b049b4e7502fb278c591838465d5ca93b5",
)
#: What the bus attaches to is made when it does; any other address is not. See docs/howto/bus-peers.md. By default
#: Artemis takes no more messages while the disk is 90 % full, whatever filled it; with -1 there is no such limit.
BROKER = """\
<configuration xmlns="urn:activemq">
  <core xmlns="urn:activemq:core">
    <persistence-enabled>false</persistence-enabled>
    <max-disk-usage>-1</max-disk-usage>
    <acceptors>
      <acceptor name="amqp">tcp://127.0.0.1:{port}?{login}</acceptor>
    </acceptors>
    <security-settings>
      <security-setting match="#">
        {permissions}
      </security-setting>
    </security-settings>
    <address-settings>
      <address-setting match="#">
        <auto-create-addresses>false</auto-create-addresses>
        <auto-create-queues>false</auto-create-queues>
      </address-setting>
      {made}
    </address-settings>
  </core>
</configuration>
"""
ACCEPTOR = "protocols=AMQP;saslMechanisms=SCRAM-SHA-256,PLAIN;saslLoginConfigScope=amqp-sasl-scram"
PERMISSION = '<permission type="{right}" roles="all"/>'
RIGHTS = (
    *("createNonDurableQueue", "deleteNonDurableQueue", "createDurableQueue", "deleteDurableQueue"),
    *("createAddress", "deleteAddress", "consume", "send", "manage"),
)
MADE = """\
      <address-setting match="{first}.#">
        <auto-create-addresses>true</auto-create-addresses>
        <auto-create-queues>true</auto-create-queues>
        <auto-delete-queues>false</auto-delete-queues>
        <auto-delete-addresses>false</auto-delete-addresses>
      </address-setting>
"""
#: How the bus' addresses begin.
KINDS = ("unicast", "exclusive", "broadcast", "notify")
BOOTSTRAP = """\
<broker xmlns="http://activemq.apache.org/schema">
  <jaas-security domain="activemq"/>
  <server configuration="{configuration}"/>
</broker>
"""
#: `SCRAMPropertiesLoginModule` logs in by SCRAM, and `SCRAMLoginModule` takes over what came of it.
LOGIN = """\
amqp-sasl-scram {{
  {jaas}.SCRAMPropertiesLoginModule required {files};
}};
activemq {{
  {jaas}.SCRAMLoginModule sufficient;
  {jaas}.PropertiesLoginModule sufficient {files};
}};
"""
_JAAS = "org.apache.activemq.artemis.spi.core.security.jaas"
_FILES = (
    'org.apache.activemq.jaas.properties.user="users.properties" '
    'org.apache.activemq.jaas.properties.role="roles.properties"'
)


def program() -> Path:
    """Return the folder of the program, fetched unless it is there. Raises maven.NotFetched and apt.NotInstalled."""
    (found,) = unpacked(ARCHIVE).iterdir()
    return found


class Artemis(JavaServer):
    """One broker, for tests with proton. Its management is by AMQP 1.0, too."""

    def __init__(self) -> None:
        super().__init__("artemis")

    def configure(self) -> list[str]:
        etc = self.directory / "etc"
        etc.mkdir()
        permissions = "".join(PERMISSION.format(right=right) for right in RIGHTS)
        made = "".join(MADE.format(first=kind) for kind in KINDS)
        (etc / "broker.xml").write_text(
            BROKER.format(port=self.port, login=ACCEPTOR, permissions=permissions, made=made)
        )
        (etc / "bootstrap.xml").write_text(BOOTSTRAP.format(configuration=(etc / "broker.xml").as_uri()))
        (etc / "management.xml").write_text('<management-context xmlns="http://activemq.apache.org/schema"/>\n')
        (etc / "login.config").write_text(LOGIN.format(jaas=_JAAS, files=_FILES))
        (etc / "users.properties").write_text(f"{self.user} = {self.password}\n")
        (etc / "roles.properties").write_text(f"all = {self.user}\n")
        home = program()
        properties = {
            "java.security.auth.login.config": etc / "login.config",
            "artemis.home": home,
            "artemis.instance": self.directory,
            "artemis.instance.etc": etc,
            "data.dir": self.directory / "data",
            "java.io.tmpdir": self.directory,
        }
        options = [f"-D{name}={value}" for name, value in properties.items()]
        boot = str(home / "lib/artemis-boot.jar")
        return [*options, "-cp", boot, "org.apache.activemq.artemis.boot.Artemis", "run"]

    def answers(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def ask(self, operation: str, *arguments: Any, resource: str = "broker") -> Any:
        """Have the broker's management do something, and return what it says."""
        from proton import Message
        from proton.utils import BlockingConnection, SyncRequestResponse

        url = f"amqp://127.0.0.1:{self.port}"
        login = {"user": self.user, "password": self.password, "allowed_mechs": "PLAIN"}
        with closing(BlockingConnection(url, timeout=30, allow_insecure_mechs=True, **login)) as connection:
            request = Message(
                properties={"_AMQ_ResourceName": resource, "_AMQ_OperationName": operation},
                body=json.dumps(arguments),
            )
            answer = SyncRequestResponse(connection, "activemq.management").call(request)
            if not answer.properties["_AMQ_OperationSucceeded"]:
                raise RuntimeError(f"Artemis refused {operation} {arguments}: {answer.body}")
            values = json.loads(answer.body or "[]")
            return values[0] if values else None

    def addresses(self) -> list[str]:
        """Return all addresses of the bus."""
        return [address for address in self.ask("getAddressNames") if address.startswith(KINDS)]

    def queues(self) -> list[str]:
        """Return the names of all queues at the bus' addresses."""
        return [
            queue for address in self.addresses() for queue in self.ask("getQueueNames", resource=f"address.{address}")
        ]

    def empty(self) -> None:
        """Delete all addresses of the bus, with their queues."""
        for address in self.addresses():
            try:
                self.ask("deleteAddress", address, True)
            except RuntimeError as error:
                if "AMQ229203" not in str(error):  # it went by itself meanwhile
                    raise
