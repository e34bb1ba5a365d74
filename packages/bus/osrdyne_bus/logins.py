"""How a program logs in, by SASL: ANONYMOUS, EXTERNAL, PLAIN and SCRAM. Pure.

SCRAM is that of RFC 5802 and RFC 7677, without channel binding. The password does not leave the program, and the peer
has to show that it knows it, too.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Protocol
from unicodedata import normalize

#: By preference, with a user and without one.
WITH_USER = "SCRAM-SHA-256 SCRAM-SHA-1 PLAIN"
WITHOUT_USER = "EXTERNAL ANONYMOUS"
#: How often SCRAM hashes a password: fewer make it easy to guess, more would hold up the program.
LEAST_ROUNDS, MOST_ROUNDS = 4096, 200_000
_SCRAM = {"SCRAM-SHA-1": "sha1", "SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
#: RFC 4422, section 3.1.
_NAME = re.compile("[A-Z0-9_-]{1,20}")
_MOST_OFFERED = 20
#: The gs2 header of RFC 5802: no channel binding.
_NO_BINDING = "n,,"


class CannotLogIn(ValueError):
    """A login cannot go on; the text goes on after the name of the peer, and holds no password."""


@dataclass(frozen=True, slots=True)
class Login:
    """A login: with a user SCRAM or PLAIN, without one EXTERNAL (the certificate of TLS) or ANONYMOUS.

    `mechanisms` are names of SASL mechanisms with spaces between, by preference; only these are used then. PLAIN sends
    the password as it is. Where others may read on the way, it is used only if it is named here.
    """

    user: str | None = None
    password: str | None = field(default=None, repr=False)
    mechanisms: str | None = None


#: Without a user.
ANYONE = Login()


class Mechanism(Protocol):
    """One login by a SASL mechanism."""

    name: str

    def begin(self) -> bytes:
        """Return what is said first."""
        ...

    def answer(self, challenge: bytes) -> bytes:
        """Return the answer to what the peer asks. Raises CannotLogIn."""
        ...

    def end(self, said: bytes) -> None:
        """Take what the peer says when it has accepted the login. Raises CannotLogIn."""
        ...


class OneMessageMechanism:
    """A mechanism in which only the client says something, and only once."""

    def __init__(self, name: str, said: bytes) -> None:
        self.name = name
        self._said = said

    def begin(self) -> bytes:
        return self._said

    def answer(self, challenge: bytes) -> bytes:
        raise CannotLogIn(f"asked more than {self.name} can say")

    def end(self, said: bytes) -> None:
        pass


class Scram:
    """A login by SCRAM."""

    def __init__(self, name: str, user: str, password: str, *, nonce: str) -> None:
        """`nonce`: a text that is used once, without commas."""
        self.name = name
        self._hash = _SCRAM[name]
        self._password = _prepared(password).encode()
        self._nonce = nonce
        self._first = f"n={_prepared(user).replace('=', '=3D').replace(',', '=2C')},r={nonce}"
        #: What shows that the peer knows the password, too; None before that was worked out.
        self._signature: bytes | None = None
        self._proven = False

    def begin(self) -> bytes:
        return f"{_NO_BINDING}{self._first}".encode()

    def answer(self, challenge: bytes) -> bytes:
        if self._signature is not None:
            self._check(challenge)
            return b""
        said = _attributes(challenge)
        if "m" in said:
            raise CannotLogIn(f"wants an extension of {self.name} that is not known here")
        nonce, rounds = said.get("r", ""), said.get("i", "")
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise CannotLogIn(f"answered {self.name} with a nonce that is not of this login")
        if not rounds.isdecimal() or len(rounds) > 9 or not LEAST_ROUNDS <= int(rounds) <= MOST_ROUNDS:
            allowed = f"{LEAST_ROUNDS} to {MOST_ROUNDS} are allowed"
            raise CannotLogIn(f"asks {self.name} for {rounds[:9]!r} rounds, and {allowed}")
        if not (salt := _decoded(said.get("s", ""))):
            raise CannotLogIn(f"answered {self.name} without a salt")
        salted = hashlib.pbkdf2_hmac(self._hash, self._password, salt, int(rounds))
        last = f"c={base64.b64encode(_NO_BINDING.encode()).decode()},r={nonce}"
        both = f"{self._first},{challenge.decode()},{last}".encode()
        key = self._keyed(salted, b"Client Key")
        mask = self._keyed(hashlib.new(self._hash, key).digest(), both)
        self._signature = self._keyed(self._keyed(salted, b"Server Key"), both)
        proof = bytes(byte ^ other for byte, other in zip(key, mask, strict=True))
        return f"{last},p={base64.b64encode(proof).decode()}".encode()

    def end(self, said: bytes) -> None:
        if not self._proven:
            self._check(said)

    def _check(self, said: bytes) -> None:
        found = _attributes(said)
        if "e" in found:
            raise CannotLogIn(f"refused the login by {self.name}: {found['e'][:40]!r}")
        given = _decoded(found.get("v", ""))
        if self._signature is None or not hmac.compare_digest(given, self._signature):
            raise CannotLogIn(f"did not show by {self.name} that it knows the password")
        self._proven = True

    def _keyed(self, key: bytes, text: bytes) -> bytes:
        return hmac.new(key, text, self._hash).digest()


def mechanism_for(login: Login, offered: Collection[str], *, private: bool) -> Mechanism:
    """Return the mechanism for a login, out of those that a peer offers. Raises CannotLogIn where none fits.

    `private`: no one else can read what is said: over TLS, or on one machine.
    """
    default = WITHOUT_USER if login.user is None else WITH_USER
    wanted = (default if login.mechanisms is None else login.mechanisms).split()
    # What a stranger says ends up in a log.
    known = [name for name in offered if _NAME.fullmatch(name)][:_MOST_OFFERED]
    clear = not private and login.mechanisms is None
    for name in wanted:
        if clear and name == "PLAIN" and name in known:
            raise CannotLogIn(
                "would be sent the password as it is, without TLS: it offers no SCRAM. Use amqps://, or allow it by "
                'the mechanisms "PLAIN"'
            )
        if name in known and (found := _made(name, login)) is not None:
            return found
    takes = f"{' '.join(wanted) or 'nothing'}{' and has no user' if login.user is None else ''}"
    raise CannotLogIn(f"offers {' '.join(known) or 'nothing'} to log in by, and this login takes {takes}")


def _made(name: str, login: Login) -> Mechanism | None:
    if name == "EXTERNAL":
        return OneMessageMechanism(name, b"")
    if name == "ANONYMOUS":
        return OneMessageMechanism(name, b"anonymous")
    if login.user is None:
        return None
    password = login.password or ""
    if "\0" in login.user + password or not _is_text(login.user) or not _is_text(password):
        raise CannotLogIn("is not asked: the user or the password is not UTF-8 text without NUL")
    if name == "PLAIN":
        return OneMessageMechanism(name, f"\0{login.user}\0{password}".encode())
    return Scram(name, login.user, password, nonce=secrets.token_urlsafe(24)) if name in _SCRAM else None


def _is_text(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _prepared(text: str) -> str:
    # The part of SASLprep (RFC 4013) that changes what people type.
    return normalize("NFKC", text)


def _attributes(said: bytes) -> dict[str, str]:
    try:
        parts = [part.partition("=") for part in said.decode().split(",")]
    except UnicodeDecodeError:
        raise CannotLogIn("answered the login with what is not text") from None
    return {name: value for name, _, value in parts}


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise CannotLogIn("answered the login with what is not base64") from None
