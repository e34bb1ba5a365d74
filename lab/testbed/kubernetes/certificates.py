"""Keys that sign tokens, and kubeconfig files."""

from __future__ import annotations

import base64
import json
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from testbed.pem import Certificate, write_key


def key_pair(folder: Path, name: str) -> tuple[Path, Path]:
    """The private and the public half of a key, for the signing of tokens."""
    key = ec.generate_private_key(ec.SECP256R1())
    private, public = folder / f"{name}.key", folder / f"{name}.pub"
    write_key(private, key)
    encoded = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    public.write_bytes(encoded)
    return private, public


def kubeconfig(server: str, cacertfile: Path, user: Certificate | str, namespace: str = "default") -> str:
    """For a user with a certificate, or with a token."""
    if isinstance(user, str):
        credentials = {"token": user}
    else:
        credentials = {
            "client-certificate-data": _encoded(user.certfile),
            "client-key-data": _encoded(user.keyfile),
        }
    facts = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": "test", "cluster": {"server": server, "certificate-authority-data": _encoded(cacertfile)}}
        ],
        "users": [{"name": "test", "user": credentials}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test", "namespace": namespace}}],
        "current-context": "test",
    }
    return json.dumps(facts, indent=1)


def _encoded(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
