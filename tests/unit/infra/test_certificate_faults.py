"""A broker whose certificate is refused: the Pulumi program and the Ansible module say why, in the same words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from osrdyne_infra.broker.management import Management
from osrdyne_infra.errors import BrokerUnusable
from testbed.authority import Authority
from testbed.handshakes import listening
from testbed.plugins import plugin

UNKNOWN = "unable to get local issuer certificate: the CA that signed the server's certificate is not known here; "


@pytest.fixture
def ours(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "ours")


@pytest.fixture
def other(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "other")


def test_the_pulumi_program_names_its_setting_only_where_none_was_given(ours: Authority, other: Authority) -> None:
    with listening(ours.issue("server", addresses=["127.0.0.1"])) as port:
        address = f"https://127.0.0.1:{port}"
        for cacertfile, expected in (
            ("", "name the file of a private CA by osrdyne:broker.cacertfile"),
            (str(other.cacertfile), f"{other.cacertfile} must hold that CA's certificate"),
        ):
            with pytest.raises(BrokerUnusable) as caught:
                Management(address, "admin", "password", cacertfile).check()
            assert f"the broker at {address} is not trusted: {UNKNOWN}{expected}" in str(caught.value)


def test_the_ansible_module_has_the_texts_of_the_filter(ours: Authority, other: Authority) -> None:
    module, faults = plugin("modules/osrdyne_topology.py"), plugin("filter/osrdyne.py").osrdyne_certificate_faults
    with listening(ours.issue("server", addresses=["127.0.0.1"])) as port:
        for tls, expected in (
            ({}, "name the file of a private CA by ?cacertfile=/path/of/ca.pem in the broker's address"),
            ({"cacertfile": str(other.cacertfile)}, f"{other.cacertfile} must hold that CA's certificate"),
        ):
            given: dict[str, Any] = {
                "url": f"https://127.0.0.1:{port}",
                "tls": tls,
                "certificate_faults": faults(tls),
                "admin": "admin",
                "admin_password": "password",
                "timeout": 30.0,
            }
            with pytest.raises(module.TopologyRefused) as caught:
                module.Api(given, rehearse=True).get("overview")
            assert f"no TLS with https://127.0.0.1:{port}: {UNKNOWN}{expected}" in str(caught.value)
