"""A test broker that speaks TLS with a certificate of a private CA."""

from __future__ import annotations

import os
import subprocess

from testbed.authority import Authority
from testbed.broker import Broker

#: The folder of the broker's configuration, by its path in the broker's root file system.
_ETC = "/etc/rabbitmq"


class TlsBroker(Broker):
    """A broker with TLS ports beside its plain ones; a client's certificate logs it in, too."""

    def __init__(self, version: str, authority: Authority, *, client_certificates: bool) -> None:
        """With `client_certificates`, a TLS connection without a certificate of the authority is refused."""
        super().__init__(version)
        # The first ports of the block that the broker has no other use for.
        self.amqps_port, self.https_port = self.prometheus_port + 3, self.prometheus_port + 4
        server = authority.issue("server", addresses=["127.0.0.1"])
        files = {"ca.pem": authority.cacertfile, "server.pem": server.certfile, "server.key": server.keyfile}
        for name, path in files.items():
            self._write(name, path.read_text())
        self._write("rabbitmq.conf", self._conf(client_certificates), append=True)
        plugins = "rabbitmq_management,rabbitmq_prometheus,rabbitmq_stream,rabbitmq_auth_mechanism_ssl"
        self._write("enabled_plugins", f"[{plugins}].\n")

    def amqps_uri(self, user: str, password: str | None, vhost: str, query: str) -> str:
        """Address for TLS. Without a password, the client's certificate logs in (EXTERNAL)."""
        name = user if password is None else f"{user}:{password}"
        return f"amqps://{name}@127.0.0.1:{self.amqps_port}/{vhost}?{query}"

    def https_uri(self, user: str, password: str, query: str) -> str:
        return f"https://{user}:{password}@127.0.0.1:{self.https_port}?{query}"

    def _conf(self, client_certificates: bool) -> str:
        lines = [
            f"listeners.ssl.1 = 127.0.0.1:{self.amqps_port}",
            "auth_mechanisms.1 = PLAIN",
            "auth_mechanisms.2 = EXTERNAL",
            "ssl_cert_login_from = common_name",
            "management.ssl.ip = 127.0.0.1",
            f"management.ssl.port = {self.https_port}",
        ]
        for prefix in ("ssl_options", "management.ssl"):
            lines += [
                f"{prefix}.cacertfile = {_ETC}/ca.pem",
                f"{prefix}.certfile = {_ETC}/server.pem",
                f"{prefix}.keyfile = {_ETC}/server.key",
                f"{prefix}.verify = verify_peer",
                f"{prefix}.fail_if_no_peer_cert = {'true' if client_certificates else 'false'}",
            ]
        return "\n".join(lines) + "\n"

    def _write(self, name: str, text: str, *, append: bool = False) -> None:
        """Write a configuration file of the broker. Another user than that of this process may own it."""
        sign = ">>" if append else ">"
        script = f'cat {sign} "$1" && chown --reference="$(dirname "$1")" "$1" && chmod 600 "$1"'
        prefix = [] if os.geteuid() == 0 else ["sudo", "-n"]
        command = [*prefix, "sh", "-c", script, "sh", str(self.directory / "etc" / name)]
        subprocess.run(command, input=text, text=True, check=True)
