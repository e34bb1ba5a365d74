"""Keys and certificates as PEM files."""

from __future__ import annotations

import datetime as dt
import ssl
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec


@dataclass(frozen=True)
class Certificate:
    """Two PEM files."""

    certfile: Path
    keyfile: Path

    def server_context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certfile, self.keyfile)
        return context


@dataclass(frozen=True)
class Issuer:
    """Name and key of a CA."""

    name: x509.Name
    key: ec.EllipticCurvePrivateKey

    def builder(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, begin: dt.datetime, end: dt.datetime
    ) -> x509.CertificateBuilder:
        """A certificate of a subject and its key, for a time."""
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(begin)
            .not_valid_after(end)
        )

    def sign(self, builder: x509.CertificateBuilder, file: Path) -> None:
        file.write_bytes(builder.sign(self.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))


def write_key(file: Path, key: ec.EllipticCurvePrivateKey) -> None:
    """Write a private key that only its owner may read."""
    file.touch(mode=0o600)
    # Kubernetes signs tokens with keys of this form only.
    form = serialization.PrivateFormat.TraditionalOpenSSL
    file.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()))
