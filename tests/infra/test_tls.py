"""A broker that speaks TLS with a certificate of a private CA."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from testbed.authority import Authority
from testbed.broker import Broker
from testbed.command_line import osrdyne
from testbed.tls import TlsBroker
from tests.infra.conftest import Stack


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "ca")


@pytest.fixture
def tls(authority: Authority) -> Iterator[TlsBroker]:
    broker = TlsBroker("4.3", authority, client_certificates=False)
    with broker:
        yield broker


def test_a_private_ca_is_trusted_where_it_is_named(
    authority: Authority, tls: TlsBroker, make_stack: Callable[[Broker], Stack], tmp_path: Path
) -> None:
    stack = make_stack(tls)
    address = {
        **stack.values["broker"],
        "management": f"https://127.0.0.1:{tls.https_port}",
        "amqp": f"amqps://127.0.0.1:{tls.amqps_port}?{authority.query()}",
    }
    stack.configure(broker=address)

    refused = stack.preview()

    assert refused.code != 0
    assert f"the broker at https://127.0.0.1:{tls.https_port} is not trusted: " in refused.text
    assert "osrdyne:broker.cacertfile" in refused.text

    stack.configure(broker={**address, "cacertfile": str(authority.cacertfile)})
    stack.must_up()

    handing = [sys.executable, "-m", "osrdyne_infra.hand_over", str(tmp_path / "out")]
    given = json.dumps(stack.project.outputs())
    subprocess.run(handing, input=given, text=True, check=True, capture_output=True)
    settings = tmp_path / "out/core/settings.toml"
    settings.write_text(settings.read_text() + '[driver]\nkind = "noop"\n')
    # With the daemon's own management address, which names the CA.
    done = osrdyne("lint", "--settings", str(settings), "--live")
    assert (done.code, done.out) == (0, b"nothing found\n"), done
