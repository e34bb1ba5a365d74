"""A private CA for tests, certificates of it, and a test broker that speaks TLS with them."""

from __future__ import annotations

import datetime as dt
import ipaddress
import os
import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from testbed.broker import Broker

_DAY = dt.timedelta(days=1)
#: Files of the broker, as it sees them.
_ETC = "/etc/rabbitmq"


@dataclass(frozen=True)
class Certificate:
    """Two PEM files."""

    certfile: Path
    keyfile: Path

    def server_context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certfile, self.keyfile)
        return context


class Authority:
    """A CA of its own in a directory."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "a private CA")])
        self.cacertfile = directory / "ca.pem"
        built = self._builder(self._name, self._key, days=1).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        self.cacertfile.write_bytes(built.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))

    def issue(self, name: str, *, address: str | None = None, days: int = 1) -> Certificate:
        """A certificate of a name, for a server at an IP address if one is given; with negative days, expired."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        builder = self._builder(subject, key, days=days)
        if address is not None:
            names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))])
            builder = builder.add_extension(names, critical=False)
        made = Certificate(self._directory / f"{name}.pem", self._directory / f"{name}.key")
        made.certfile.write_bytes(builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
        made.keyfile.touch(mode=0o600)
        made.keyfile.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return made

    def query(self, certificate: Certificate | None = None, **more: str) -> str:
        """The query of an address that trusts this CA, and shows a certificate."""
        options = {"cacertfile": str(self.cacertfile), **more}
        if certificate is not None:
            options |= {"certfile": str(certificate.certfile), "keyfile": str(certificate.keyfile)}
        return urlencode(options)

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, *, days: int) -> x509.CertificateBuilder:
        end = dt.datetime.now(dt.UTC) + days * _DAY
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(end - 3 * _DAY)
            .not_valid_after(end)
        )


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
