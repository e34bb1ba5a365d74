"""The login before a connection: frames as they come, in whatever pieces, and what is not a login."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from proton import UNDESCRIBED, Array, Connection, Data, Described, symbol, ulong

from osrdyne_bus.engine.handshake import HEADER, Handshake, NotAmqp
from osrdyne_bus.engine.transport import ProtonTransport
from osrdyne_bus.logins import CannotLogIn, Login

PLAIN = Login("user", "password", "PLAIN")


def frame(kind: int, *fields: object) -> bytes:
    data = Data()
    data.put_object(Described(ulong(kind), list(fields)))
    body = bytes(data.encode())
    return (len(body) + 8).to_bytes(4, "big") + b"\x02\x01\x00\x00" + body


OFFER = frame(0x40, Array(UNDESCRIBED, Data.SYMBOL, symbol("ANONYMOUS"), symbol("PLAIN")))
DONE = frame(0x44, 0)


@pytest.mark.parametrize("size", [1, 7, 1000])
@pytest.mark.parametrize("offer", [OFFER, frame(0x40, symbol("PLAIN"))])
def test_a_login_comes_in_any_pieces_and_what_follows_it_is_kept(size: int, offer: bytes) -> None:
    handshake = Handshake(PLAIN, "host")
    said, came = handshake.begin(private=True), HEADER + offer + DONE + b"AMQP\0\1\0\0"
    assert said == HEADER
    said = b""
    rest = b""
    for at in range(0, len(came), size):
        if handshake.done:
            rest += came[at : at + size]
        else:
            said += handshake.received(came[at : at + size])
    assert handshake.rest + rest == b"AMQP\0\1\0\0"
    assert said == frame(0x41, symbol("PLAIN"), b"\0user\0password", "host")


@pytest.mark.parametrize(("code", "why"), [(1, "user, password or certificate are wrong"), (4, "it failed for now")])
def test_a_refused_login_says_why(code: int, why: str) -> None:
    with pytest.raises(CannotLogIn, match=f"refused the login by PLAIN: {why}"):
        Handshake(PLAIN, "host").received(HEADER + OFFER + frame(0x44, code))


class Socket(asyncio.Transport):
    """A connection to an address, which keeps what is written."""

    def __init__(self, address: str, *, tls: bool) -> None:
        super().__init__({"peername": (address, 5672), "ssl_object": object() if tls else None})
        self.written = b""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def abort(self) -> None:
        pass


@pytest.mark.parametrize(
    ("address", "tls", "sent"),
    [
        ("127.0.0.1", False, True),
        ("::1", False, True),
        ("::ffff:127.0.0.1", False, True),
        ("192.0.2.1", True, True),
        ("192.0.2.1", False, False),
        ("2001:db8::1", False, False),
    ],
)
async def test_a_password_is_sent_as_it_is_only_over_tls_or_on_this_machine(
    address: str, tls: bool, sent: bool
) -> None:
    refusals: list[Exception] = []
    protocol = ProtonTransport(Connection(), print, not_logged_in=refusals.append, disconnected=print)
    protocol.begin(Handshake(Login("user", "password"), "host"))
    socket = Socket(address, tls=tls)
    protocol.connection_made(socket)
    protocol.data_received(HEADER + OFFER)
    assert (b"password" in socket.written, not refusals) == (sent, sent)
    protocol.gone.set()


def test_a_peer_without_a_mechanism_that_fits_is_refused() -> None:
    with pytest.raises(CannotLogIn, match="offers SCRAM-SHA-256 to log in by, and this login takes EXTERNAL ANONYMOUS"):
        Handshake(Login(), "host").received(HEADER + frame(0x40, symbol("SCRAM-SHA-256")))


@pytest.mark.parametrize(
    "came",
    [
        b"HTTP/1.1 400 Bad Request",
        b"AMQP\0\0\x09\x01",
        b"AMQP\0\1\0\0",
        HEADER + DONE,
        HEADER + OFFER + OFFER,
        HEADER + b"\xff\xff\xff\xff\2\1\0\0",
        HEADER + b"\0\0\0\4\2\1\0\0",
        HEADER + b"\0\0\0\x08\2\0\0\0",
        HEADER + b"\0\0\0\x08\2\1\0\0",
        HEADER + frame(0x40),
        HEADER + OFFER + frame(0x44, None),
        HEADER + OFFER + frame(0x10, "open"),
    ],
)
def test_what_is_not_a_login_is_refused(came: bytes) -> None:
    with pytest.raises(NotAmqp):
        Handshake(PLAIN, "host").received(came)


@given(st.binary(max_size=200), st.booleans())
def test_whatever_comes_ends_in_one_of_two_errors_or_waits_for_more(came: bytes, offered: bool) -> None:
    handshake = Handshake(PLAIN, "host")
    handshake.received(HEADER + (OFFER if offered else b""))
    with contextlib.suppress(CannotLogIn, NotAmqp):
        handshake.received((len(came) + 8).to_bytes(4, "big") + b"\2\1\0\0" + came)


@given(
    st.sampled_from(range(0x3F, 0x47)),
    st.lists(st.none() | st.booleans() | st.integers(0, 9) | st.text() | st.binary()),
)
def test_fields_of_any_type_end_in_one_of_two_errors_or_wait_for_more(kind: int, fields: list[object]) -> None:
    for before in (HEADER, HEADER + OFFER):
        with contextlib.suppress(CannotLogIn, NotAmqp):
            Handshake(PLAIN, "host").received(before + frame(kind, *fields))
