"""Where a worker of our library finds the broker's address: in its environment, in a file, or in both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from osrdyne_amqp.address import present
from osrdyne_amqp.errors import InvalidUri
from osrdyne_protocol.worker_environment import WorkerEnvironment
from osrdyne_worker.session import present_address

AT_THE_START = "amqp://worker:old@broker/pool"
GIVEN = WorkerEnvironment("id", "key", "core", "core-req-key", "core-activity-xchg", AT_THE_START)


def test_the_address_of_the_file_wins_because_it_may_be_newer(tmp_path: Path) -> None:
    (tmp_path / "uri").write_text("amqp://worker:new@broker/pool\n")

    assert present_address(GIVEN) == AT_THE_START
    assert present_address(replace(GIVEN, amqp_uri_file=str(tmp_path / "uri"))) == "amqp://worker:new@broker/pool"


def test_a_file_that_cannot_be_read_leaves_the_address_of_the_start(tmp_path: Path) -> None:
    assert present_address(replace(GIVEN, amqp_uri_file=str(tmp_path / "absent"))) == AT_THE_START


def test_an_address_in_a_file_alone_is_read_from_there(tmp_path: Path) -> None:
    (tmp_path / "uri").write_text("amqp://worker:new@broker/pool\n")
    alone = replace(GIVEN, amqp_uri="", amqp_uri_file=str(tmp_path / "uri"))

    assert present_address(alone) == "amqp://worker:new@broker/pool"


def test_an_address_in_a_file_alone_that_cannot_be_read_is_reported_with_the_file(tmp_path: Path) -> None:
    alone = replace(GIVEN, amqp_uri="", amqp_uri_file=str(tmp_path / "absent"))

    with pytest.raises(InvalidUri, match=r"cannot be read: No such file or directory: .*absent"):
        present_address(alone)


def refused() -> str:
    raise ConnectionRefusedError("of a vault")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (lambda: Path("amqp://user:secret@host").read_text(), "cannot be read: No such file or directory"),
        (refused, "cannot be read: ConnectionRefusedError"),
    ],
)
def test_what_a_function_for_an_address_fails_with_is_said_without_the_address(
    given: Callable[[], str], said: str
) -> None:
    with pytest.raises(InvalidUri) as raised:
        present(given)
    assert str(raised.value) == f"the broker's address {said}"
