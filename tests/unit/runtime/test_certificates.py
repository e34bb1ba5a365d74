"""A program's own certificate: what is wrong with its files is said, and no password is asked for."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from osrdyne_runtime import certificates
from testbed.authority import Authority
from testbed.pem import Certificate


@pytest.fixture
def own(tmp_path: Path) -> Certificate:
    return Authority(tmp_path).issue("own")


def load(certificate: Path, key: Path | None) -> None:
    certificates.load(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), certificate, key)


def test_a_certificate_and_its_key_are_in_two_files_or_in_one(own: Certificate, tmp_path: Path) -> None:
    both = tmp_path / "both.pem"
    both.write_bytes(own.certfile.read_bytes() + own.keyfile.read_bytes())

    load(own.certfile, own.keyfile)
    load(both, None)


def test_a_key_that_needs_a_password_is_refused_without_a_prompt(own: Certificate) -> None:
    key = serialization.load_pem_private_key(own.keyfile.read_bytes(), None)
    locked = serialization.BestAvailableEncryption(b"password")
    kind, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    own.keyfile.write_bytes(key.private_bytes(kind, form, locked))

    with pytest.raises(OSError, match="need no password"):
        load(own.certfile, own.keyfile)


def test_a_key_of_another_certificate_is_refused(own: Certificate, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = Authority(tmp_path / "other").issue("other")

    with pytest.raises(OSError, match="belong together"):
        load(own.certfile, other.keyfile)


def test_a_certificate_file_that_is_missing_is_an_error(own: Certificate, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "none.pem", own.keyfile)
