"""The CA of the tests: what it issues passes the strict verification of Python 3.13, on each Python."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from testbed.authority import Authority
from testbed.handshakes import shake_hands, strict
from testbed.pem import Certificate


def verify_both(authority: Authority, certificate: Certificate, host: str) -> None:
    """Have both sides show a certificate, and verify it strictly."""
    client, server = strict(authority), certificate.server_context()
    client.load_cert_chain(certificate.certfile, certificate.keyfile)
    server.load_verify_locations(authority.cacertfile)
    server.verify_mode = ssl.CERT_REQUIRED
    server.verify_flags |= ssl.VERIFY_X509_STRICT
    shake_hands(client, server, host)


@pytest.mark.parametrize(
    ("host", "given"),
    [
        ("127.0.0.1", {"addresses": ["127.0.0.1"]}),
        ("localhost", {"hosts": ["node.example", "localhost"], "organization": "system:masters", "file": "another"}),
    ],
)
def test_a_certificate_passes_strict_verification_on_both_sides(
    host: str, given: dict[str, Any], tmp_path: Path
) -> None:
    authority = Authority(tmp_path)

    verify_both(authority, authority.issue("server", **given), host)


def test_a_second_authority_in_the_same_folder_is_the_same_authority(tmp_path: Path) -> None:
    first = Authority(tmp_path, "kubernetes")
    again = Authority(tmp_path, "kubernetes")

    verify_both(first, again.issue("server", addresses=["127.0.0.1"]), "127.0.0.1")


def test_a_certificate_expires_after_the_days_it_is_given(tmp_path: Path) -> None:
    authority = Authority(tmp_path)

    with pytest.raises(ssl.SSLCertVerificationError, match="expired"):
        verify_both(authority, authority.issue("server", addresses=["127.0.0.1"], days=-1), "127.0.0.1")


@pytest.mark.parametrize(
    ("extension", "words"),
    [(x509.KeyUsage, "key usage"), (x509.SubjectKeyIdentifier, "Subject Key Identifier")],
)
def test_an_authority_without_one_of_its_extensions_is_refused(
    extension: type[x509.ExtensionType], words: str, tmp_path: Path
) -> None:
    authority = Authority(tmp_path, without=[extension])

    with pytest.raises(ssl.SSLCertVerificationError, match=f"(?i){words}"):
        verify_both(authority, authority.issue("server", addresses=["127.0.0.1"]), "127.0.0.1")
