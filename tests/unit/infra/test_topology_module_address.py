"""The Ansible module takes the address of the management API with its path `/api`, and without."""

from __future__ import annotations

import pytest

from testbed.plugins import plugin


@pytest.mark.parametrize("url", ["http://h:15672", "http://h:15672/", "http://h:15672/api", "http://h:15672/api/"])
def test_the_path_of_the_api_may_be_given(url: str) -> None:
    given = {"url": url, "admin": "a", "admin_password": "p", "timeout": 1, "certificate_faults": {}, "tls": {}}

    assert plugin("modules/osrdyne_topology.py").Api(given, rehearse=True).url == "http://h:15672"
