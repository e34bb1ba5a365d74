"""What is wrong with a server's certificate: the text names the certificate, the field and what to do."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
from cryptography import x509

from osrdyne_runtime import certificate_faults
from testbed.authority import Authority, Extensions
from testbed.handshakes import shake_hands, strict
from testbed.pem import Certificate

HOST = "127.0.0.1"
COMMANDS = "docs/howto/tls.md has the commands"


def refusal(authority: Authority, certificate: Certificate, host: str = HOST) -> ssl.SSLCertVerificationError:
    """Return the refusal of a server's certificate by who trusts an authority, and verifies as Python 3.13 does."""
    with pytest.raises(ssl.SSLCertVerificationError) as caught:
        shake_hands(strict(authority), certificate.server_context(), host)
    return caught.value


def said(error: BaseException, authority: object = "/etc/ca.pem") -> str:
    found = certificate_faults.fault(error, authority=authority, setting="cacertfile")
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("of_authority", "of_server", "expected"),
    [
        ([x509.KeyUsage], (), "CA cert does not include key usage extension: the certificate of the CA that signed"),
        ([x509.KeyUsage], (), "has no key usage; make the CA and what it signed again: " + COMMANDS),
        ([x509.SubjectKeyIdentifier], (), "of the CA that signed the server's has no subject key identifier"),
        ((), [x509.AuthorityKeyIdentifier], "the server's certificate has no authority key identifier; have the"),
        ((), [x509.AuthorityKeyIdentifier], COMMANDS),
        ([x509.BasicConstraints, x509.KeyUsage], (), "is not one of a CA"),
    ],
)
def test_what_strict_verification_misses_is_named_with_its_certificate_and_the_commands(
    of_authority: Extensions, of_server: Extensions, expected: str, tmp_path: Path
) -> None:
    authority = Authority(tmp_path, without=of_authority)

    text = said(refusal(authority, authority.issue("server", addresses=[HOST], without=of_server)))

    assert expected in text
    assert "/etc/ca.pem" not in text
    assert "cacertfile" not in text


def test_a_ca_is_asked_for_where_none_was_named_and_else_the_named_file_is_in_question(tmp_path: Path) -> None:
    ours, other = Authority(tmp_path / "ours"), Authority(tmp_path / "other")
    error = refusal(other, ours.issue("server", addresses=[HOST]))

    assert "the CA that signed the server's certificate is not known here" in said(error)
    assert said(error, None).endswith("; name the file of a private CA by cacertfile")
    assert "/etc/ca.pem must hold that CA's certificate" in said(error)
    assert "name the file" not in said(error)


def test_a_certificate_that_signed_itself_is_not_known(tmp_path: Path) -> None:
    ours, other = Authority(tmp_path / "ours"), Authority(tmp_path / "other")
    error = refusal(other, Certificate(ours.cacertfile, tmp_path / "ours/ca.key"))

    assert "was signed by no CA, and is not known here; name the file of a private CA" in said(error, None)


@pytest.mark.parametrize(
    ("host", "expected"), [("localhost", "does not hold the host name"), ("127.0.0.2", "does not hold the IP address")]
)
def test_the_certificate_of_another_host_is_named(host: str, expected: str, tmp_path: Path) -> None:
    authority = Authority(tmp_path)

    text = said(refusal(authority, authority.issue("server", addresses=[HOST]), host))

    assert expected in text
    assert host in text


def test_a_certificate_that_has_expired_is_named(tmp_path: Path) -> None:
    authority = Authority(tmp_path)

    text = said(refusal(authority, authority.issue("server", addresses=[HOST], days=-1)))

    assert text.startswith("certificate has expired: ")
    assert "renew the server's certificate, or check this machine's clock" in text


def test_a_refusal_is_found_in_what_a_library_makes_of_it(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    error = refusal(authority, authority.issue("server", addresses=[HOST], days=-1))
    as_attribute = OSError("the library's words")
    as_attribute.reason = error  # type: ignore[attr-defined]
    as_cause = ConnectionError("the library's words")
    as_cause.__cause__ = RuntimeError(as_attribute)

    assert said(as_cause) == said(error)


def test_an_error_that_is_not_a_refusal_has_no_fault() -> None:
    for error in (OSError("connection refused"), ssl.SSLError(1, "wrong version number")):
        assert certificate_faults.fault(error, authority=None, setting="cacertfile") is None


def test_a_fault_that_is_not_known_leads_to_the_page() -> None:
    unknown = certificate_faults.described(999, authority=None, setting="cacertfile")

    assert unknown == certificate_faults.texts(authority=None, setting="cacertfile")["0"]
    assert "docs/howto/tls.md" in unknown


def test_texts_by_code_are_those_of_the_faults(tmp_path: Path) -> None:
    authority = Authority(tmp_path, without=[x509.KeyUsage])
    error = refusal(authority, authority.issue("server", addresses=[HOST]))

    texts = certificate_faults.texts(authority="/etc/ca.pem", setting="cacertfile")

    assert said(error) == f"{error.verify_message}: {texts[str(error.verify_code)]}"
    # All that openssl/x509_vfy.h has for the rules of RFC 5280.
    assert {str(code) for code in range(79, 95)} <= texts.keys()
