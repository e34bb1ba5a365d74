"""The cluster's own CA, certificates for a day, and kubeconfig files."""

from __future__ import annotations

import base64
import datetime as dt
import ipaddress
import json
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from testbed.pem import Certificate, Issuer, write_key

_DAY = dt.timedelta(days=1)


#: What the key of a CA is for.
_SIGNS = x509.KeyUsage(
    digital_signature=True,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)


class Authority:
    """A CA whose files are in a folder; one that is there already goes on."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self.cacertfile = folder / "ca.crt"
        self.keyfile = folder / "ca.key"
        name = _name("kubernetes")
        if self.keyfile.exists():
            loaded = serialization.load_pem_private_key(self.keyfile.read_bytes(), None)
            assert isinstance(loaded, ec.EllipticCurvePrivateKey)
            self._issuer = Issuer(name, loaded)
            return
        self._issuer = Issuer(name, ec.generate_private_key(ec.SECP256R1()))
        ca = x509.BasicConstraints(ca=True, path_length=None)
        built = self._builder(name, self._issuer.key).add_extension(ca, critical=True)
        write_key(self.keyfile, self._issuer.key)
        self._issuer.sign(built.add_extension(_SIGNS, critical=True), self.cacertfile)

    def issue(
        self,
        file: str,
        name: str,
        *,
        organization: str = "",
        addresses: tuple[str, ...] = (),
        hosts: tuple[str, ...] = (),
    ) -> Certificate:
        """A certificate for a client and a server: `organization` is the client's group, the rest is the server's."""
        key = ec.generate_private_key(ec.SECP256R1())
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]
        builder = self._builder(_name(name, organization), key).add_extension(
            x509.ExtendedKeyUsage(usages), critical=False
        )
        names: list[x509.GeneralName] = [x509.DNSName(host) for host in hosts]
        names += [x509.IPAddress(ipaddress.ip_address(address)) for address in addresses]
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        made = Certificate(self._folder / f"{file}.crt", self._folder / f"{file}.key")
        self._issuer.sign(builder, made.certfile)
        write_key(made.keyfile, key)
        return made

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        now = dt.datetime.now(dt.UTC)
        return (
            self._issuer.builder(subject, key, now - _DAY, now + _DAY)
            # Python 3.13 trusts no certificate without them.
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._issuer.key.public_key()), critical=False
            )
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        )


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


def _name(common: str, organization: str = "") -> x509.Name:
    attributes = [x509.NameAttribute(x509.NameOID.COMMON_NAME, common)]
    if organization:
        attributes.insert(0, x509.NameAttribute(x509.NameOID.ORGANIZATION_NAME, organization))
    return x509.Name(attributes)
