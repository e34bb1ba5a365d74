"""The Ansible filter that takes the address of a named broker apart."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.errors import AnsibleFilterError

from testbed.plugins import plugin


def address(text: str, part: str) -> Any:
    return plugin("filter/osrdyne.py").FilterModule().filters()["osrdyne_address"](text, part)


@pytest.mark.parametrize(
    "text, part, expected",
    [
        ("amqp://n%C3%A9:p%40ss%2Fw%3A%25+x@broker:5673/my%2Fv%20host", "username", "né"),
        ("amqp://n%C3%A9:p%40ss%2Fw%3A%25+x@broker:5673/my%2Fv%20host", "password", "p@ss/w:%+x"),
        ("amqp://n%C3%A9:p%40ss%2Fw%3A%25+x@broker:5673/my%2Fv%20host", "vhost", "my/v host"),
        ("amqp://n%C3%A9:p%40ss%2Fw%3A%25+x@broker:5673/my%2Fv%20host", "place", "amqp://broker:5673"),
        ("amqp://n%C3%A9:p%40ss%2Fw%3A%25+x@broker:5673/my%2Fv%20host", "management", "http://broker:15672"),
        ("amqp://a:b@broker/%2F", "vhost", "/"),
        ("amqp://a:b@broker", "vhost", ""),
        ("amqps://a:b@[::1]/v", "place", "amqps://[::1]:5671"),
        ("amqps://a:b@[::1]/v", "management", "https://[::1]:15671"),
        ("amqps://a:b@[::1]/v", "hostname", "::1"),
        ("amqp://a:b@broker", "port", "5672"),
        ("", "vhost", ""),
        ("amqps://a:b@broker/v?cacertfile=/etc/ca.pem", "vhost", "v"),
        ("amqps://a:b@broker/v?cacertfile=/etc/ca.pem", "query", "?cacertfile=/etc/ca.pem"),
        ("amqps://a:b@broker/v", "query", ""),
    ],
)
def test_each_part_of_an_address_is_decoded(text: str, part: str, expected: str) -> None:
    assert address(text, part) == expected


@pytest.mark.parametrize("text", ["amqp://a:secret@broker:x/v", "amqp://a:secret/1@broker/v"])
def test_a_port_that_is_not_a_number_is_reported_without_the_password(text: str) -> None:
    with pytest.raises(AnsibleFilterError, match="port") as refused:
        address(text, "place")
    assert "secret" not in str(refused.value)
