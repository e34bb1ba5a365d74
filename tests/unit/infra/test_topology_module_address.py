"""The Ansible module takes the address of the management API with its path `/api`, and without."""

from __future__ import annotations

from typing import Any

import pytest

from testbed.plugins import plugin


@pytest.mark.parametrize("url", ["http://h:15672", "http://h:15672/", "http://h:15672/api", "http://h:15672/api/"])
def test_the_path_of_the_api_may_be_given(url: str) -> None:
    assert plugin("modules/osrdyne_topology.py").Api(given(url), rehearse=True).url == "http://h:15672"


def test_an_address_with_a_query_is_refused_as_no_request_would_reach_its_path() -> None:
    module = plugin("modules/osrdyne_topology.py")

    with pytest.raises(module.TopologyRefused, match="has a query; leave it out"):
        module.Api(given("https://h:15671?cacertfile=/a"), rehearse=True)


def given(url: str) -> dict[str, Any]:
    return {"url": url, "admin": "a", "admin_password": "p", "timeout": 1, "certificate_faults": {}, "tls": {}}
