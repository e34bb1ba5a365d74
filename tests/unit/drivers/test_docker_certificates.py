"""A Docker engine over TLS whose certificate is refused: the error says why, and which file is in question."""

from __future__ import annotations

from pathlib import Path

import pytest

from osrdyne.drivers.docker.engine import Engine
from osrdyne.errors import DriverError
from testbed.authority import Authority
from testbed.handshakes import listening


async def test_an_engine_of_another_authority_is_refused_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, other = Authority(tmp_path / "ours"), Authority(tmp_path / "other")
    own = other.issue("own")
    (tmp_path / "other/cert.pem").write_bytes(own.certfile.read_bytes())
    (tmp_path / "other/key.pem").write_bytes(own.keyfile.read_bytes())
    monkeypatch.setenv("DOCKER_TLS_VERIFY", "1")
    monkeypatch.setenv("DOCKER_CERT_PATH", str(tmp_path / "other"))
    with listening(ours.issue("server", addresses=["127.0.0.1"])) as port:
        engine = Engine(f"tcp://127.0.0.1:{port}")
        with pytest.raises(DriverError) as caught:
            await engine.start("any")

    assert "the CA that signed the server's certificate is not known here" in str(caught.value)
    assert f"ca.pem in {tmp_path / 'other'} must hold that CA's certificate" in str(caught.value)
    assert "is it running" not in str(caught.value)
