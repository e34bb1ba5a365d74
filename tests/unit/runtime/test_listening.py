"""Which addresses a server listens on, and which it refuses."""

from __future__ import annotations

import errno
import socket
from contextlib import ExitStack

import pytest

from osrdyne_runtime.serve.listening import CannotListen, address, listen

V4, V6 = "127.0.0.1", "::1"


@pytest.fixture
def named(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The addresses that any name has."""
    found = [V4]

    def resolved(_: str, port: int, **__: object) -> list[tuple[object, ...]]:
        kinds = [
            (socket.AF_INET6, (address, port, 0, 0)) if ":" in address else (socket.AF_INET, (address, port))
            for address in found
        ]
        return [(family, socket.SOCK_STREAM, 0, "", where) for family, where in kinds]

    monkeypatch.setattr("osrdyne_runtime.serve.listening.socket.getaddrinfo", resolved)
    return found


def test_every_address_of_a_name_is_listened_on_by_one_port(named: list[str]) -> None:
    named[:] = [V6, V4]
    with ExitStack() as opened:
        made = [opened.enter_context(listener) for listener in listen("localhost", 0, others_need="set a token")]
        port = made[0].getsockname()[1]
        assert [address(listener) for listener in made] == [f"http://[::1]:{port}", f"http://127.0.0.1:{port}"]


def test_an_address_that_this_machine_has_not_is_left_out_where_there_is_another(named: list[str]) -> None:
    named[:] = ["2001:db8::1", V4]
    (one,) = listen("localhost", 0)
    with one:
        assert one.getsockname()[0] == V4
    named[:] = ["192.0.2.1"]
    with pytest.raises(CannotListen, match=r"cannot listen on elsewhere, port 0: .*; choose another"):
        listen("elsewhere", 0)


def test_a_name_of_which_one_address_can_be_reached_by_others_is_refused(named: list[str]) -> None:
    named[:] = [V4, "0.0.0.0"]
    with pytest.raises(CannotListen, match=r"^name can be reached from other machines: set a token, or listen on"):
        listen("name", 0, others_need="set a token")


def test_nothing_stays_open_where_one_of_the_addresses_is_taken(named: list[str]) -> None:
    with socket.create_server((V4, 0)) as taken:
        port = taken.getsockname()[1]
        named[:] = [V6, V4]
        with pytest.raises(CannotListen) as error:
            listen("localhost", port)
    assert isinstance(error.value.__cause__, OSError)
    assert error.value.__cause__.errno == errno.EADDRINUSE
    named[:] = [V6]
    (one,) = listen("localhost", port)
    one.close()


def test_no_name_means_all_addresses_and_one_that_cannot_be_is_refused() -> None:
    with ExitStack() as opened:
        assert [opened.enter_context(listener) for listener in listen("", 0)]
    with pytest.raises(CannotListen, match="from other machines"):
        listen("", 0, others_need="set a token")
    with pytest.raises(CannotListen, match=r"cannot listen on 'a\.\.b', port 0: it is not a name"):
        listen("a..b", 0)
