"""The nodes that a client or worker may use, and how it shows who it is. Does no HTTP."""

from __future__ import annotations

import random
import ssl
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypedDict, Unpack
from urllib.parse import urlsplit

from osrdyne_protocol import foreign_json
from osrdyne_protocol.errors import SettingsError
from osrdyne_protocol.headers import X_REASON, X_STATUS
from osrdyne_protocol.statuses import OK
from osrdyne_relay import wire
from osrdyne_relay.checking import checked_request, checked_timeouts
from osrdyne_relay.errors import CallRefused, InvalidCall, NodeFailed, NodesAway, RelayError, StreamLost
from osrdyne_relay.messages import Request, Response
from osrdyne_relay.redis.names import check_endpoint
from osrdyne_runtime import addresses, certificate_faults, certificates, log_lines
from osrdyne_runtime.settings import secrets
from osrdyne_runtime.settings.changes import FileChanges

log = log_lines.logger(__name__)

#: Seconds for a connection to open.
CONNECT_SECONDS = 10.0
#: Seconds beyond a call's own timeout after which its node counts as lost.
LOST_AFTER_TIMEOUT_SECONDS = 1.0
#: Seconds in which a node that gives a data stream may give nothing.
STREAM_SILENCE_SECONDS = 60.0
#: Seconds for which a node may take nothing of a data stream, or not say that it is stored: its store may be slow.
STREAM_STALL_SECONDS = 300.0
#: Seconds for a data stream to be removed. Otherwise it expires.
STREAM_REMOVAL_SECONDS = 5.0


class ClientIdentity(TypedDict, total=False):
    """How a client or worker shows who it is: keyword arguments of all that use nodes."""

    token: str | None
    #: Read at each request: a changed token counts at once.
    token_file: Path | None
    #: Authorities of the nodes' certificates. Without it, those of the system. A changed file counts at the next
    #: connection, as one of the next two does.
    ca_file: Path | None
    #: A certificate in place of a token.
    certificate_file: Path | None
    key_file: Path | None


class Nodes:
    """Addresses of nodes, and a token or a certificate for all of them."""

    def __init__(self, urls: str | Sequence[str], **identity: Unpack[ClientIdentity]) -> None:
        """Raises SettingsError, and TypeError for an argument that `ClientIdentity` does not have."""
        if unknown := identity.keys() - ClientIdentity.__annotations__.keys():
            raise TypeError(
                f"unexpected argument {min(unknown)!r}; there are {', '.join(ClientIdentity.__annotations__)}"
            )
        self._identity = identity
        token, token_file = identity.get("token"), identity.get("token_file")
        certificate_file: Path | None = identity.get("certificate_file")
        self.urls = [_url(url) for url in ([urls] if isinstance(urls, str) else urls)]
        if not self.urls:
            raise SettingsError("url", "names no node; give https://HOST:8044")
        if token is not None and token_file is not None:
            raise secrets.given_twice("token")
        if token is not None and not (token.isascii() and token.isprintable() and " " not in token):
            raise SettingsError("token", "is not printable ASCII without blanks")
        self._token, self._token_file = token, token_file
        self._first = random.randrange(len(self.urls))
        files = (identity.get("ca_file"), certificate_file, identity.get("key_file"))
        self._changes = FileChanges(file for file in files if file)
        self._tls = self._context()

    @property
    def tls(self) -> ssl.SSLContext:
        """What to connect with: another one when a file has changed. The former one while a file cannot be used."""
        if self._changes.found():
            try:
                self._tls = self._context()
            except SettingsError as error:
                log.warning("changed files cannot be used; what they said before counts", extra={"reason": str(error)})
        return self._tls

    def _context(self) -> ssl.SSLContext:
        certificate_file = self._identity.get("certificate_file")
        try:
            made = ssl.create_default_context(cafile=self._identity.get("ca_file"))
            if certificate_file is not None:
                certificates.load(made, certificate_file, self._identity.get("key_file"))
        except OSError as error:
            raise SettingsError(
                "certificate_file" if certificate_file else "ca_file", f"cannot be used: {error}"
            ) from None
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        # For handlers in processes of their own: what TLS has made cannot be pickled.
        return partial(Nodes, **self._identity), (self.urls,)

    def certificate_fault(self, error: BaseException) -> str | None:
        """Return what is wrong with a node's certificate, and what to do; None where an error is another."""
        return certificate_faults.fault(error, authority=self._identity.get("ca_file"), setting="ca_file")

    def order(self) -> list[str]:
        """Return the addresses in the order in which they are tried: the one that worked last comes first."""
        return self.urls[self._first :] + self.urls[: self._first]

    def worked(self, url: str) -> None:
        """Note the address of a node that answered."""
        self._first = self.urls.index(url)

    def authorization(self) -> dict[str, str]:
        """Return the header that shows the token, where there is one. Raises NodesAway: its file may be away."""
        try:
            token = secrets.in_file(self._token_file, "token_file") if self._token_file is not None else self._token
        except SettingsError as error:
            raise NodesAway(str(error)) from None
        return {} if token is None else {"Authorization": f"Bearer {token}"}


def _url(text: str) -> str:
    wrong = addresses.problem(text, "http", "https")
    parts = urlsplit(text if wrong is None else "")
    if parts.query or parts.username or parts.fragment:
        wrong = "has a user, a query or a fragment, which the address of a node has not"
    if wrong is not None:
        raise SettingsError("url", f"{wrong}; give https://HOST:8044")
    return parts.geturl().rstrip("/")


def call_of(
    endpoint: str, request: Request | bytes, timeout: float | None, pickup_timeout: float | None
) -> tuple[Callable[..., str], dict[str, str], Request, float | None]:
    """Return what makes the path of a call over HTTP with a `timeout`, the headers, the request, and the whole timeout.

    Raises InvalidCall or TooLarge.
    """
    timeout, pickup_timeout = checked_timeouts(timeout, pickup_timeout)
    whole = checked_request(request)
    path = partial(wire.path, wire.CALL, check_endpoint(endpoint), pickup_timeout=pickup_timeout)
    headers = {"Content-Type": "application/octet-stream"}
    if whole.headers:
        headers[wire.HEADERS_HEADER] = wire.dump_headers(wire.checked_headers(dict(whole.headers)))
    return path, headers, whole, timeout


def timeout_at(within: float, timeout: float) -> float:
    """Return the timeout of a call at a node that counts as lost `within` seconds, which says before that it is over.

    To the millisecond. It has half of less than two seconds. Where nothing is left, it is not above 0.
    """
    return min(timeout, round(max(within - LOST_AFTER_TIMEOUT_SECONDS, within / 2), 3))


def response_of(status: int, headers: Mapping[str, str], body: bytes) -> Response:
    """Return what a node answered to a call. Raises the error that it is."""
    if status != 200:
        raise wire.error_of(status, body)
    try:
        response = Response(body, wire.load_headers(headers.get(wire.HEADERS_HEADER)))
    except InvalidCall as error:
        raise NodeFailed(f"the answer of the node cannot be read: {error}") from None
    said = response.headers.get(X_STATUS, OK)
    if said != OK:
        raise CallRefused(said, response.headers.get(X_REASON, ""), body)
    return response


def stream_of(url: str, stream: str) -> str:
    """Return the address of a data stream at a node."""
    return f"{url}{wire.STREAMS}/{stream}"


def size_in(status: int, body: bytes) -> int:
    """Return the bytes of a data stream that a node has stored. Raises the error that its answer is."""
    if status != 201:
        raise wire.error_of(status, body)
    try:
        return int(foreign_json.read(body)["size"])
    except (ValueError, LookupError, TypeError):
        raise NodeFailed from None


def not_sent(error: RelayError) -> StreamLost:
    """Return the error of a data stream whose node was lost while it took it."""
    return StreamLost(f"a data stream could not be sent, so nothing was called or answered by it: {error}")


def cut_off(stream: str) -> StreamLost:
    """Return the error of a data stream whose node was lost while it gave it."""
    return StreamLost(f"the connection to the node ended within data stream {stream}: read it once more")


def none_reached(failures: Mapping[str, object]) -> RelayError:
    """Return the error of a call that no node took."""
    said = "; ".join(f"{url}: {why}" for url, why in failures.items())
    return NodesAway(f"{NodesAway.__doc__} They say: {said}"[:2000])
