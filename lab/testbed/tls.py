"""A test broker that speaks TLS with a certificate of a private CA."""

from __future__ import annotations

import os
import subprocess

from testbed.authority import Authority
from testbed.broker import Broker

#: Files of the broker, as it sees them.
_ETC = "/etc/rabbitmq"


class TlsBroker(Broker):
    """A broker that takes TLS beside plain connections, on ports of its own; certificates log in, too."""

    def __init__(self, version: str, authority: Authority, *, certificates: bool) -> None:
        """With `certificates`, a TLS connection without one of the authority is refused."""
        super().__init__(version)
        self.amqps_port, self.https_port = range(self.prometheus_port + 3, self.prometheus_port + 5)
        server = authority.issue("server", addresses=["127.0.0.1"])
        files = {"ca.pem": authority.cacertfile, "server.pem": server.certfile, "server.key": server.keyfile}
        for name, path in files.items():
            self._write(name, path.read_text())
        self._write("rabbitmq.conf", self._conf(certificates), append=True)
        plugins = "rabbitmq_management,rabbitmq_prometheus,rabbitmq_stream,rabbitmq_auth_mechanism_ssl"
        self._write("enabled_plugins", f"[{plugins}].\n")

    def amqps_uri(self, user: str, password: str | None, vhost: str, query: str, host: str = "127.0.0.1") -> str:
        """Address for TLS; without a password, for EXTERNAL."""
        name = user if password is None else f"{user}:{password}"
        return f"amqps://{name}@{host}:{self.amqps_port}/{vhost}?{query}"

    def https_uri(self, user: str, password: str, query: str, host: str = "127.0.0.1") -> str:
        return f"https://{user}:{password}@{host}:{self.https_port}?{query}"

    def _conf(self, certificates: bool) -> str:
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
                f"{prefix}.fail_if_no_peer_cert = {'true' if certificates else 'false'}",
            ]
        return "\n".join(lines) + "\n"

    def _write(self, name: str, text: str, *, append: bool = False) -> None:
        """Write a file of the broker's account, which may not be ours."""
        sign = ">>" if append else ">"
        script = f'cat {sign} "$1" && chown --reference="$(dirname "$1")" "$1" && chmod 600 "$1"'
        prefix = [] if os.geteuid() == 0 else ["sudo", "-n"]
        command = [*prefix, "sh", "-c", script, "sh", str(self.directory / "etc" / name)]
        subprocess.run(command, input=text, text=True, check=True)
