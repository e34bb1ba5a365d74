"""What is wrong in an address is said in one way by all that read one, and none of it is quoted."""

from __future__ import annotations

import random
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from osrdyne.broker.management_api import ManagementApi
from osrdyne_amqp.address import virtual_host
from osrdyne_amqp.connecting.opening import parameters
from osrdyne_bus.peers import InvalidPeer, Peer
from osrdyne_infra.checks import address as infra_address
from osrdyne_jobs.database.addresses import read as database_address
from osrdyne_pipeline.errors import SourceError
from osrdyne_pipeline.source.consumer import _parameters as pipeline_parameters
from osrdyne_relay.client.addresses import Nodes
from osrdyne_relay.settings import RedisSettings
from osrdyne_runtime.addresses import problem

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
    ("SCHEME://u:verysecret@h/v#w", "has a #"),
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
    "pipeline": (pipeline_parameters, "amqp"),
}


#: Those that have other words for what is wrong.
WITHOUT_ONE_TEXT: dict[str, tuple[Callable[[str], object], str]] = {
    "postgresql": (database_address, "postgresql"),
    "sqlite": (database_address, "sqlite"),
}


@pytest.mark.parametrize(("address", "words"), WRONG)
@pytest.mark.parametrize("reader", READERS)
def test_every_reader_says_what_is_wrong_and_quotes_nothing(reader: str, address: str, words: str) -> None:
    read, scheme = READERS[reader]

    with pytest.raises(Exception, match=r"\w") as found:
        read(address.replace("SCHEME", scheme))

    assert words.replace("SCHEME", scheme) in str(found.value)
    assert "secret" not in str(found.value)


#: Pieces of passwords: each stands for itself, and what stands between them is what makes an address malformed.
PIECES = ("qzx", "Vkj7", "wvq%41", "99187", "jq\N{LATIN SMALL LETTER E WITH ACUTE}z", "xkcq")
BETWEEN = (
    *"/:@?#%&=[]+;, \\\n\0\t\"'<>{}|^`~$!*().-_",
    "",
    "%zz",
    "%ff",
    "%2",
    "&&",
    "//",
    "://",
    "@@",
    "?&",
    "\udc80",
)
SHAPES = (
    *("SCHEME://user:PASSWORD@h/v", "SCHEME://user:PASSWORD@h:5672/v?heartbeat=60", "SCHEME://:PASSWORD@h"),
    *("SCHEME://user:PASSWORD", "SCHEME://PASSWORD@h/v", "SCHEME:user:PASSWORD@h", "user:PASSWORD@h", "PASSWORD"),
    *("SCHEME://h/v?password=PASSWORD", "SCHEME://h/v?heartbeat=60&PASSWORD=1", "SCHEME://user:p@h:PASSWORD/v"),
    *("SCHEME://user:PASSWORD@h/v?cacertfile=/a@b", "SCHEME://user:p@[PASSWORD]/v", "SCHEME://user:PASSWORD@h,h2:1/v"),
    *("SCHEME://user:PASSWORD@/v?host=h&port=x", "other://user:PASSWORD@h/v", "SCHEME://h/PASSWORD@x/v"),
)


def malformed(scheme: str, number: int, seed: int) -> Iterator[tuple[str, set[str]]]:
    """Yield addresses, and the pieces of a password that no text may have."""
    chosen = random.Random(seed)
    for _ in range(number):
        pieces = chosen.sample(PIECES, chosen.randint(1, 4))
        password = "".join(part for piece in pieces for part in (piece, chosen.choice(BETWEEN)))
        shape = chosen.choice(SHAPES).replace("SCHEME", scheme)
        yield shape.replace("PASSWORD", password), {piece.lower() for piece in pieces}


@pytest.mark.parametrize("reader", [*READERS, *WITHOUT_ONE_TEXT])
def test_no_part_of_a_password_is_in_an_error_whatever_is_wrong_in_the_address(reader: str) -> None:
    read, scheme = {**READERS, **WITHOUT_ONE_TEXT}[reader]
    refused = 0
    for address, pieces in malformed(scheme, 600, seed=41):
        try:
            read(address)
        except Exception as error:  # noqa: BLE001 - whatever it is, people see it
            refused += 1
            shown_text = "".join(traceback.format_exception(error)) + repr(error)
            shown = {piece for piece in pieces if piece in shown_text.lower()}
            assert not shown, (address, shown_text)
    assert refused > 100


def test_an_address_that_is_right_has_no_problem() -> None:
    for address in ("amqp://u:p%2f@h:5672/v%2Fw", "amqps://[2001:db8::1]:5671", "amqp://h"):
        assert problem(address, "amqp", "amqps") is None


def test_nothing_of_an_address_is_dropped_in_silence() -> None:
    with pytest.raises(InvalidPeer, match="has a password and no user"):
        Peer.parse("amqp://:verysecret@h/v")
    with pytest.raises(SourceError, match="a / within the virtual host's name"):
        pipeline_parameters("amqp://u:verysecret@h/a/b")


def test_the_management_api_may_be_named_with_its_path() -> None:
    for address in ("http://u:p@h:15672", "http://u:p@h:15672/api", "http://u:p@h:15672/api/"):
        server = ManagementApi(address, "/")._server
        assert server.client.root.endswith("h:15672/api"), address
    assert "/prefix/api" in ManagementApi("http://u:p@h/prefix/api", "/")._server.client.root


def test_of_the_address_of_a_node_an_empty_query_is_left_out() -> None:
    assert Nodes(["https://h:8044/?", "https://h/prefix/"]).urls == ["https://h:8044", "https://h/prefix"]


@pytest.mark.parametrize("mark", ["\ufeff", ""])
def test_the_file_of_an_address_may_begin_with_a_byte_order_mark(mark: str, tmp_path: Path) -> None:
    from osrdyne_amqp.address import from_file

    (tmp_path / "uri").write_text(f"{mark}amqp://u:p@h/v\n", encoding="utf-8")

    assert from_file(tmp_path / "uri")() == "amqp://u:p@h/v"
