"""Which names a server answers to, and which addresses mean this machine."""

from __future__ import annotations

import pytest

from osrdyne_runtime import hosts


@pytest.mark.parametrize(
    "header",
    [
        "",
        "localhost",
        "LOCALHOST:8042",
        "127.0.0.1:8042",
        "[::1]:8042",
        "10.0.0.7",
        "[2001:db8::1]",
        "osrdyne.example:1",
    ],
)
def test_an_address_or_a_name_of_the_server_is_answered(header: str) -> None:
    assert hosts.may_name(header, ["Osrdyne.example"])


@pytest.mark.parametrize(
    "header",
    ["evil.example", "evil.example:8042", "127.0.0.1.evil.example", "localhost.evil.example", "x:y:z", "[evil]"],
)
def test_another_name_is_not_answered(header: str) -> None:
    assert not hosts.may_name(header, ["osrdyne.example"])


@pytest.mark.parametrize(
    ("address", "here"),
    [
        *((address, True) for address in ("127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1", "localhost")),
        *((address, False) for address in ("10.0.0.1", "::ffff:10.0.0.1", "fe80::1%eth0", "localhost.example", "")),
    ],
)
def test_loopback_is_what_means_this_machine_only(address: str, here: bool) -> None:
    assert hosts.is_loopback(address) is here
