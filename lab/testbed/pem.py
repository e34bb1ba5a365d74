"""Keys and certificates as PEM files."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives import serialization
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


def write_key(file: Path, key: ec.EllipticCurvePrivateKey) -> None:
    """Write a private key that only its owner may read."""
    file.touch(mode=0o600)
    # Kubernetes signs tokens with keys of this form only.
    form = serialization.PrivateFormat.TraditionalOpenSSL
    file.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()))
