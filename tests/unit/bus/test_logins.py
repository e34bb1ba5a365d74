"""Logins by SASL: which mechanism is taken, and what SCRAM says, by the examples of its specifications."""

from __future__ import annotations

import pytest

from osrdyne_bus.logins import CannotLogIn, Login, Scram, mechanism_for

#: RFC 5802, section 5, and RFC 7677, section 3: mechanism, nonce, challenge, answer, and what the server ends with.
EXAMPLES = [
    (
        "SCRAM-SHA-1",
        "fyko+d2lbbFgONRv9qkxdawL",
        b"r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096",
        b"c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=",
        b"v=rmF9pqV8S7suAoZWja4dJRkFsKQ=",
    ),
    (
        "SCRAM-SHA-256",
        "rOprNGfwEbeRWgbNEkqO",
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
        b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
    ),
]
EACH = pytest.mark.parametrize(("name", "nonce", "challenge", "answer", "end"), EXAMPLES, ids=["sha-1", "sha-256"])


@EACH
@pytest.mark.parametrize("late", [True, False])
def test_scram_says_what_its_specification_says(
    name: str, nonce: str, challenge: bytes, answer: bytes, end: bytes, late: bool
) -> None:
    scram = Scram(name, "user", "pencil", nonce=nonce)

    assert scram.begin() == f"n,,n=user,r={nonce}".encode()
    assert scram.answer(challenge) == answer
    # A peer shows that it knows the password with the outcome, or before it.
    if late:
        scram.end(end)
    else:
        assert scram.answer(end) == b""
        scram.end(b"")


@EACH
@pytest.mark.parametrize("said", [b"", b"v=", b"e=invalid-proof", b"v=AAAA", b"v=?", b"\xff"])
def test_a_peer_that_does_not_know_the_password_is_not_a_peer(
    name: str, nonce: str, challenge: bytes, answer: bytes, end: bytes, said: bytes
) -> None:
    scram = Scram(name, "user", "pencil", nonce=nonce)
    with pytest.raises(CannotLogIn, match="did not show"):
        scram.end(end)
    assert scram.answer(challenge) == answer
    with pytest.raises(CannotLogIn):
        scram.end(said)


@pytest.mark.parametrize(
    ("challenge", "why"),
    [
        (b"r=other,s=QSXCR+Q6sek8bf92,i=4096", "a nonce that is not of this login"),
        (b"r=mine,s=QSXCR+Q6sek8bf92,i=4096", "a nonce that is not of this login"),
        (b"", "a nonce that is not of this login"),
        (b"r=mine1,s=QSXCR+Q6sek8bf92,i=1", "'1' rounds, and 4096 to"),
        (b"r=mine1,s=QSXCR+Q6sek8bf92,i=99999999999", "'999999999' rounds"),
        (b"r=mine1,s=QSXCR+Q6sek8bf92", "'' rounds"),
        (b"r=mine1,s=?,i=4096", "not base64"),
        (b"r=mine1,s=,i=4096", "without a salt"),
        (b"r=mine1,i=4096", "without a salt"),
        (b"m=ext,r=mine1,s=QSXCR+Q6sek8bf92,i=4096", "an extension of SCRAM-SHA-256 that is not known here"),
        (b"\xff", "not text"),
    ],
)
def test_scram_answers_no_challenge_that_is_not_as_it_has_to_be(challenge: bytes, why: str) -> None:
    with pytest.raises(CannotLogIn, match=why):
        Scram("SCRAM-SHA-256", "user", "pencil", nonce="mine").answer(challenge)


def test_names_with_what_parts_words_are_escaped() -> None:
    assert Scram("SCRAM-SHA-1", "a=b,c", "x", nonce="n").begin() == b"n,,n=a=3Db=2Cc,r=n"


OFFERED = ["ANONYMOUS", "PLAIN", "EXTERNAL", "SCRAM-SHA-1", "SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI"]


@pytest.mark.parametrize(
    ("login", "offered", "name"),
    [
        (Login("u", "p"), OFFERED, "SCRAM-SHA-256"),
        (Login("u", "p"), ["PLAIN", "ANONYMOUS"], "PLAIN"),
        (Login("u", "p", "SCRAM-SHA-512 PLAIN"), OFFERED, "SCRAM-SHA-512"),
        (Login("u", "p", "GSSAPI PLAIN"), OFFERED, "PLAIN"),
        (Login("u", "p", "EXTERNAL"), OFFERED, "EXTERNAL"),
        (Login(), OFFERED, "EXTERNAL"),
        (Login(), ["PLAIN", "ANONYMOUS"], "ANONYMOUS"),
    ],
)
def test_the_strongest_mechanism_of_a_login_is_taken_that_the_peer_offers(
    login: Login, offered: list[str], name: str
) -> None:
    assert mechanism_for(login, offered, private=True).name == name


@pytest.mark.parametrize(
    ("login", "offered"),
    [
        (Login("u", "p", "SCRAM-SHA-256"), ["PLAIN"]),
        (Login(), ["SCRAM-SHA-256", "PLAIN"]),
        (Login(mechanisms="PLAIN"), ["PLAIN"]),
        (Login("u", "p"), ["GSSAPI"]),
        (Login("u", "p"), []),
        (Login("u", "p", ""), ["PLAIN"]),
    ],
)
def test_where_no_mechanism_fits_both_sides_are_named(login: Login, offered: list[str]) -> None:
    with pytest.raises(CannotLogIn, match=r"^offers .* to log in by, and this login takes ") as raised:
        mechanism_for(login, offered, private=True)
    assert all(name in str(raised.value) for name in offered)


def test_a_password_is_not_sent_as_it_is_where_others_may_read_it_unless_that_is_allowed() -> None:
    with pytest.raises(CannotLogIn, match=r"without TLS: .* Use amqps://, or allow it") as raised:
        mechanism_for(Login("u", "secret"), ["ANONYMOUS", "PLAIN"], private=False)
    assert "secret" not in str(raised.value)
    assert mechanism_for(Login("u", "p", "PLAIN"), ["PLAIN"], private=False).name == "PLAIN"
    assert mechanism_for(Login("u", "p"), OFFERED, private=False).name == "SCRAM-SHA-256"
    assert mechanism_for(Login(), ["PLAIN", "ANONYMOUS"], private=False).name == "ANONYMOUS"


def test_mechanisms_of_one_word_say_who_logs_in() -> None:
    assert mechanism_for(Login("ü", "p"), ["PLAIN"], private=True).begin() == "\0ü\0p".encode()
    assert mechanism_for(Login(), ["EXTERNAL"], private=True).begin() == b""
    plain = mechanism_for(Login("u"), ["PLAIN"], private=True)
    plain.end(b"")
    with pytest.raises(CannotLogIn, match="more than PLAIN can say"):
        plain.answer(b"?")


def test_what_a_stranger_offers_is_not_a_line_of_a_log() -> None:
    offered = ["GSSAPI", "X\nERROR \x1b[31m", "Y" * 60_000, "kerberos", *(f"Z{number}" for number in range(100))]
    with pytest.raises(CannotLogIn) as raised:
        mechanism_for(Login("u", "p"), offered, private=True)
    assert str(raised.value).startswith("offers GSSAPI Z0 Z1 ")
    assert str(raised.value).isprintable()
    assert len(str(raised.value)) < 300


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
@pytest.mark.parametrize(
    "login", [Login("u\0admin", "p"), Login("u", "secret\0"), Login("\udce9", "p"), Login("u", "secret\udce9")]
)
def test_a_name_or_password_that_cannot_be_sent_is_reported_and_not_shown(login: Login, mechanism: str) -> None:
    with pytest.raises(CannotLogIn, match="the user or the password is not UTF-8 text without NUL") as raised:
        mechanism_for(login, [mechanism], private=True)
    assert raised.value.__context__ is None
    assert "secret" not in repr(raised.value)
