"""docs/howto/tls.md: the commands for a private CA, run as they stand, make what strict verification accepts."""

from __future__ import annotations

import re
import ssl
import subprocess
from pathlib import Path

import pytest

import steps
from testbed.handshakes import shake_hands
from testbed.pem import Certificate

PAGE = Path(steps.ROOT, "docs/howto/tls.md").read_text()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the commands of the page were run."""
    commands = re.search(r"^## A private CA\n.*?^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert commands is not None
    made = tmp_path_factory.mktemp("ca")
    done = subprocess.run(["sh", "-eu"], input=commands[1], cwd=made, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "server.pem: OK\nclient.pem: OK\n"
    return made


def verifying(context: ssl.SSLContext, folder: Path) -> ssl.SSLContext:
    """Have a context verify the other side as Python 3.13 does."""
    context.load_verify_locations(folder / "ca.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags |= ssl.VERIFY_X509_STRICT | ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


@pytest.mark.parametrize("host", ["broker.example", "localhost", "127.0.0.1"])
def test_both_sides_accept_the_certificates_of_the_page_under_strict_verification(host: str, folder: Path) -> None:
    server = verifying(Certificate(folder / "server.pem", folder / "server.key").server_context(), folder)
    client = verifying(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), folder)
    client.load_cert_chain(folder / "client.pem", folder / "client.key")

    shake_hands(client, server, host)


def test_only_their_owner_may_read_the_keys(folder: Path) -> None:
    assert {file.name: file.stat().st_mode & 0o077 for file in folder.glob("*.key")} == dict.fromkeys(
        ("ca.key", "server.key", "client.key"), 0
    )
