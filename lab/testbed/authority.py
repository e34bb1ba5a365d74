"""The one CA of all tests: certificates with all extensions that strict verification (RFC 5280) asks for.

Python 3.13 verifies strictly, and earlier versions do not. `without` leaves extensions out, for tests of what is then
said.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
from collections.abc import Collection
from pathlib import Path
from urllib.parse import urlencode

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from testbed.pem import Certificate, write_key

_DAY = dt.timedelta(days=1)
#: Types of extensions.
Extensions = Collection[type[x509.ExtensionType]]


class Authority:
    """A CA whose files are in a folder; one that is there already goes on."""

    def __init__(self, folder: Path, name: str = "a private CA", *, without: Extensions = ()) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._name = _named(name)
        self.cacertfile, keyfile = folder / "ca.pem", folder / "ca.key"
        if keyfile.exists():
            loaded = serialization.load_pem_private_key(keyfile.read_bytes(), None)
            assert isinstance(loaded, ec.EllipticCurvePrivateKey)
            self._key = loaded
            return
        self._key = ec.generate_private_key(ec.SECP256R1())
        write_key(keyfile, self._key)
        extensions = [
            (x509.BasicConstraints(ca=True, path_length=None), True),
            (_usage(signs=True), True),
        ]
        self._sign(self.cacertfile, self._name, self._key, extensions, days=1, without=without)

    def issue(
        self,
        name: str,
        *,
        file: str = "",
        organization: str = "",
        addresses: Collection[str] = (),
        hosts: Collection[str] = (),
        days: int = 1,
        without: Extensions = (),
    ) -> Certificate:
        """Issue a certificate for a client and a server, in files named after `file` or its name.

        A server has `addresses` (of IP) and `hosts`. With negative `days`, the certificate has expired.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        extensions: list[tuple[x509.ExtensionType, bool]] = [
            (x509.BasicConstraints(ca=False, path_length=None), True),
            (_usage(signs=False), True),
            (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]), False),
        ]
        names: list[x509.GeneralName] = [x509.DNSName(host) for host in hosts]
        names += [x509.IPAddress(ipaddress.ip_address(address)) for address in addresses]
        if names:
            extensions.append((x509.SubjectAlternativeName(names), False))
        made = Certificate(self._folder / f"{file or name}.pem", self._folder / f"{file or name}.key")
        self._sign(made.certfile, _named(name, organization), key, extensions, days=days, without=without)
        write_key(made.keyfile, key)
        return made

    def query(self, certificate: Certificate | None = None, **more: str) -> str:
        """The query of an address that trusts this CA, and shows a certificate."""
        options = {"cacertfile": str(self.cacertfile), **more}
        if certificate is not None:
            options |= {"certfile": str(certificate.certfile), "keyfile": str(certificate.keyfile)}
        return urlencode(options)

    def _sign(
        self,
        file: Path,
        subject: x509.Name,
        key: ec.EllipticCurvePrivateKey,
        extensions: list[tuple[x509.ExtensionType, bool]],
        *,
        days: int,
        without: Extensions,
    ) -> None:
        end = dt.datetime.now(dt.UTC) + days * _DAY
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(end - 3 * _DAY)
            .not_valid_after(end)
        )
        identifiers: list[tuple[x509.ExtensionType, bool]] = [
            (x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False),
            (x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), False),
        ]
        for extension, critical in (*extensions, *identifiers):
            if type(extension) not in without:
                builder = builder.add_extension(extension, critical)
        file.write_bytes(builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))


def _usage(*, signs: bool) -> x509.KeyUsage:
    """What a key is for: that of a CA signs certificates and revocation lists, and others sign handshakes."""
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _named(common: str, organization: str = "") -> x509.Name:
    attributes = [x509.NameAttribute(x509.NameOID.COMMON_NAME, common)]
    if organization:
        attributes.insert(0, x509.NameAttribute(x509.NameOID.ORGANIZATION_NAME, organization))
    return x509.Name(attributes)
