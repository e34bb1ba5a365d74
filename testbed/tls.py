"""A private CA for tests, certificates of it, and a test broker that speaks TLS with them."""

from __future__ import annotations

import datetime as dt
import ipaddress
import os
import subprocess
from pathlib import Path
from urllib.parse import urlencode

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from testbed.broker import Broker
from testbed.pem import Certificate, Issuer, write_key

_DAY = dt.timedelta(days=1)
#: Files of the broker, as it sees them.
_ETC = "/etc/rabbitmq"


class Authority:
    """A CA of its own in a directory."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        key = ec.generate_private_key(ec.SECP256R1())
        self._issuer = Issuer(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "a private CA")]), key)
        self.cacertfile = directory / "ca.pem"
        ca = x509.BasicConstraints(ca=True, path_length=None)
        self._issuer.sign(
            self._builder(self._issuer.name, key, days=1).add_extension(ca, critical=True), self.cacertfile
        )

    def issue(self, name: str, *, address: str | None = None, days: int = 1) -> Certificate:
        """A certificate of a name, for a server at an IP address if one is given; with negative days, expired."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        builder = self._builder(subject, key, days=days)
        if address is not None:
            names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))])
            builder = builder.add_extension(names, critical=False)
        made = Certificate(self._directory / f"{name}.pem", self._directory / f"{name}.key")
        self._issuer.sign(builder, made.certfile)
        write_key(made.keyfile, key)
        return made

    def query(self, certificate: Certificate | None = None, **more: str) -> str:
        """The query of an address that trusts this CA, and shows a certificate."""
        options = {"cacertfile": str(self.cacertfile), **more}
        if certificate is not None:
            options |= {"certfile": str(certificate.certfile), "keyfile": str(certificate.keyfile)}
        return urlencode(options)

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, *, days: int) -> x509.CertificateBuilder:
        end = dt.datetime.now(dt.UTC) + days * _DAY
        return self._issuer.builder(subject, key, end - 3 * _DAY, end)


class TlsBroker(Broker):
    """A broker that takes TLS beside plain connections, on ports of its own; certificates log in, too."""

    def __init__(self, version: str, authority: Authority, *, certificates: bool) -> None:
        """With `certificates`, a TLS connection without one of the authority is refused."""
        super().__init__(version)
        self.amqps_port, self.https_port = range(self.prometheus_port + 3, self.prometheus_port + 5)
        server = authority.issue("server", address="127.0.0.1")
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
