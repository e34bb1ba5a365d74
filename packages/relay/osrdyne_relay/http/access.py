"""Who a client is, and what it may do: the access file, which is TOML.

    [clients.lax]
    token_sha256 = "9f86…"
    serve = ["maps/LAX"]

    [clients.web]
    certificates = ["web.example"]
    call = ["maps/*"]

A client shows a token or a certificate. The file holds the SHA-256 of tokens: it lets no reader in. A token is looked
up by that hash. The time of the look-up depends on the hash alone, which says nothing of a token.
"""

from __future__ import annotations

import asyncio
import hashlib
import ssl
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints

from osrdyne_protocol.errors import SettingsError
from osrdyne_relay.errors import AccessDenied
from osrdyne_runtime import log_lines
from osrdyne_runtime.serve import tokens
from osrdyne_runtime.settings import secrets
from osrdyne_runtime.settings.changes import FileChanges
from osrdyne_runtime.settings.model import StrictModel

log = log_lines.logger(__name__)

#: Seconds between two looks whether a file has changed.
FILE_CHECK_SECONDS = 2.0


def _several(value: object) -> object:
    return [value] if isinstance(value, str) else value


def _pattern(value: str) -> str:
    if "*" in value[:-1]:
        raise ValueError("a `*` may only be the last character: it stands for any further ones")
    return value


_Hash = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
_Pattern = Annotated[str, StringConstraints(min_length=1), AfterValidator(_pattern)]


class Grant(StrictModel):
    """What one client may do. A pattern is an endpoint, or the begin of some and `*`."""

    #: Of its token; of the old and the new one while it changes.
    token_sha256: Annotated[tuple[_Hash, ...], BeforeValidator(_several)] = ()
    #: Names of its certificate: the common name of the subject, or a DNS name of the alternative names.
    certificates: tuple[Annotated[str, StringConstraints(min_length=1)], ...] = ()
    #: Endpoints that it may serve, and those that it may call.
    serve: tuple[_Pattern, ...] = ()
    call: tuple[_Pattern, ...] = ()
    #: Whether it may read the metrics.
    metrics: bool = False
    #: Most polls, calls and requests in hand, and most endpoints. Without it, the setting `most`.
    most: int | None = Field(default=None, ge=1, le=1_000_000)


class _File(StrictModel):
    clients: dict[Annotated[str, StringConstraints(min_length=1, max_length=200)], Grant]


class KnownClient:
    """A client that has shown who it is."""

    def __init__(self, name: str, grant: Grant) -> None:
        self.name = name
        self.grant = grant

    def may_serve(self, endpoint: str) -> None:
        """Raise AccessDenied where it may not."""
        _check(self.grant.serve, endpoint, "serve")

    def may_call(self, endpoint: str) -> None:
        """Raise AccessDenied where it may not."""
        _check(self.grant.call, endpoint, "call")

    def may_read_metrics(self) -> None:
        """Raise AccessDenied where it may not."""
        if not self.grant.metrics:
            raise AccessDenied("this client may not read the metrics: look at the node's access file")


def _check(patterns: tuple[str, ...], endpoint: str, what: str) -> None:
    for pattern in patterns:
        if endpoint == pattern or (pattern.endswith("*") and endpoint.startswith(pattern[:-1])):
            return
    raise AccessDenied(f"this client may not {what} this endpoint: look at the node's access file")


def sha256_of(token: str) -> str:
    """Return what the access file holds of a token."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


class Access:
    """The clients of one file."""

    def __init__(self, clients: Mapping[str, Grant]) -> None:
        """Raises ValueError where two clients share a token or a certificate."""
        self._clients = {name: KnownClient(name, grant) for name, grant in clients.items()}
        self._by_token: dict[str, KnownClient] = {}
        self._by_certificate: dict[str, KnownClient] = {}
        for client in self._clients.values():
            for digest in client.grant.token_sha256:
                if self._by_token.setdefault(digest, client) is not client:
                    raise ValueError(f"client {client.name!r} has the token of another client: give it its own")
            for certificate in client.grant.certificates:
                if self._by_certificate.setdefault(certificate, client) is not client:
                    raise ValueError(f"client {client.name!r} has the certificate of another client: give it its own")

    @classmethod
    def read(cls, file: Path) -> Self:
        """Return what a file says. Raises SettingsError."""
        text = secrets.text_in(file, "relay.serve.access_file")
        try:
            return cls(_File.from_mapping(tomllib.loads(text)).clients)
        except SettingsError as error:
            raise SettingsError(f"{file}: {error.path}", error.problem) from None
        except (ValueError, RecursionError) as error:
            raise SettingsError(str(file), f"is not an access file: {error}") from None

    def identify(self, authorization: str | None, certificate: Mapping[str, Any] | None) -> KnownClient:
        """Return the client that shows a token or a certificate; a token counts first. Raises AccessDenied."""
        found = None
        if authorization is not None:
            if (token := tokens.bearer(authorization)) is not None:
                found = self._by_token.get(sha256_of(token))
        else:
            found = next(filter(None, map(self._by_certificate.get, names_of(certificate))), None)
        if found is None:
            raise AccessDenied
        return found

    def still_grants(self, client: KnownClient) -> bool:
        """Whether a client that was identified by an earlier file has the same rights in this one."""
        now = self._clients.get(client.name)
        return now is not None and now.grant == client.grant


def names_of(certificate: Mapping[str, Any] | None) -> list[str]:
    """Return the names of a certificate that was verified, in the form of `SSLSocket.getpeercert`."""
    if not certificate:
        return []
    subject = [value for part in certificate.get("subject", ()) for name, value in part if name == "commonName"]
    return subject + [value for kind, value in certificate.get("subjectAltName", ()) if kind == "DNS"]


class WatchedFiles:
    """Files that are read again when they change. What cannot be read leaves what was read before."""

    def __init__(self, files: list[Path], read: Callable[[], None]) -> None:
        self._files, self._read, self._changes = files, read, FileChanges(files)

    def look(self) -> None:
        """Read the files where they have changed. Raises nothing."""
        if not self._changes.found():
            return
        try:
            self._read()
        except (SettingsError, OSError, ssl.SSLError) as error:
            log.error("a changed file cannot be used; what it said before counts", extra={"reason": str(error)})
        else:
            log.info("changed files were read again", extra={"files": [str(file) for file in self._files]})

    async def run(self) -> None:
        """Look for ever."""
        while True:
            await asyncio.sleep(FILE_CHECK_SECONDS)
            self.look()
