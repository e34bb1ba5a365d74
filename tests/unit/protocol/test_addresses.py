"""What is wrong in an address is said in one way by all that read one, and none of it is quoted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from osrdyne.broker.management_api import ManagementApi
from osrdyne_amqp.address import virtual_host
from osrdyne_amqp.opening import parameters
from osrdyne_bus.peers import Peer
from osrdyne_infra.checks import address as infra_address
from osrdyne_protocol.addresses import problem
from osrdyne_relay.client.addresses import Nodes
from osrdyne_relay.settings import RedisSettings

WRONG = [
    ("", "is empty"),
    ("SCHEME://u:verysecret@h:port/v", "has a port that is not a number from 1 to 65535"),
    ("SCHEME://u:verysecret@h:0/v", "has a port that is not a number"),
    ("SCHEME://u:verysecret@h:65536/v", "has a port that is not a number"),
    ("SCHEME://u:verysecret@[::1/v", "that are not around the numbers of an IPv6 address"),
    ("SCHEME://u:verysecret@2001:db8::1/v", "has a port that is not a number"),
    ("SCHEME://u:very/secret@h/v", "has an @ behind its host"),
    ("SCHEME://u:very#secret@h/v", "has an @ behind its host"),
    ("SCHEME://u:verysecret@", "names no host"),
    ("SCHEME:u:verysecret", "names no host"),
    ("SCHEME://u:verysecret@h h/v", "has a space, or what cannot be printed, in its host"),
    ("SCHEME://u:verysecret%ff@h/v", "has percent-encoded bytes that are not UTF-8"),
    ("other://u:verysecret@h/v", "does not start with SCHEME://"),
]


def redis(address: str) -> None:
    RedisSettings.model_construct(url=address, url_file=None).address()


#: Each reader of an address, and its scheme.
READERS: dict[str, tuple[Callable[[str], object], str]] = {
    "amqp": (lambda address: parameters(address, "n", 60, 10), "amqp"),
    "vhost": (virtual_host, "amqp"),
    "management": (lambda address: ManagementApi(address, "/"), "http"),
    "bus": (Peer.parse, "amqp"),
    "redis": (redis, "redis"),
    "nodes": (lambda address: Nodes([address]), "http"),
    "infra": (infra_address("http", "https"), "http"),
}


@pytest.mark.parametrize(("address", "words"), WRONG)
@pytest.mark.parametrize("reader", READERS)
def test_every_reader_says_what_is_wrong_and_quotes_nothing(reader: str, address: str, words: str) -> None:
    read, scheme = READERS[reader]

    with pytest.raises(Exception, match=r"\w") as found:
        read(address.replace("SCHEME", scheme))

    assert words.replace("SCHEME", scheme) in str(found.value)
    assert "secret" not in str(found.value)


def test_an_address_that_is_right_has_no_problem() -> None:
    for address in ("amqp://u:p%2f@h:5672/v%2Fw", "amqps://[2001:db8::1]:5671", "amqp://h"):
        assert problem(address, "amqp", "amqps") is None


def test_the_management_api_may_be_named_with_its_path() -> None:
    for address in ("http://u:p@h:15672", "http://u:p@h:15672/api", "http://u:p@h:15672/api/"):
        server = ManagementApi(address, "/")._server
        assert server.client.base_url.endswith("h:15672/api/"), address
    assert "/prefix/api/" in ManagementApi("http://u:p@h/prefix/api", "/")._server.client.base_url


@pytest.mark.parametrize("mark", ["\ufeff", ""])
def test_the_file_of_an_address_may_begin_with_a_byte_order_mark(mark: str, tmp_path: Path) -> None:
    from osrdyne_amqp.address import from_file

    (tmp_path / "uri").write_text(f"{mark}amqp://u:p@h/v\n", encoding="utf-8")

    assert from_file(tmp_path / "uri")() == "amqp://u:p@h/v"
