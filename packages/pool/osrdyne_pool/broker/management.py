"""RabbitMQ's management API over HTTP: the one client of it. It blocks, and its callers word its errors.

Standard library only. A request takes no proxy of the environment, and follows no redirect: it has a password. What
comes back is checked as all JSON of others.
"""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote, urlencode

from osrdyne_protocol import foreign_json
from osrdyne_protocol.errors import OsrdyneError

#: A query for a queue's own samples, which are younger than those of the API's aggregates.
FRESH_TOTALS: Final[dict[str, str]] = {"disable_stats": "true", "enable_queue_totals": "true"}
#: Bytes of an error's text that are kept.
_MOST_TEXT_BYTES = 100_000


class ManagementRefused(OsrdyneError):
    """The management API answered with an error. `status` is that of HTTP, `text` what came with it."""

    def __init__(self, method: str, path: str, status: int, text: str) -> None:
        super().__init__(f"{method} {path} was refused with {status}: {text[:500]}")
        self.status = status
        self.text = text

    @property
    def reason(self) -> str:
        """RabbitMQ's own reason; empty where something else answered."""
        try:
            return str(foreign_json.read(self.text)["reason"])
        except (ValueError, TypeError, KeyError):
            return ""


class ManagementAway(OsrdyneError, OSError):
    """Nothing answers at the address of the management API, or what answers is not trusted; the cause says why."""


class ManagementUnreadable(OsrdyneError):
    """What answers at the address of the management API does not speak HTTP or JSON; the cause says why."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


@dataclass(frozen=True)
class ManagementClient:
    """The API at an address without user, which may end with `/api`, with one user's rights."""

    url: str
    user: str
    password: str = field(repr=False)
    #: What to connect with over https; None for the system's authorities.
    tls: ssl.SSLContext | None = field(default=None, repr=False)
    #: Seconds to wait for one answer.
    timeout: float = 15.0

    @property
    def root(self) -> str:
        """The address that paths follow."""
        return f"{self.url.rstrip('/').removesuffix('/api')}/api"

    def call(self, method: str, *path: str, query: Mapping[str, str] | None = None, body: object = None) -> Any:
        """Send a request and return what came back, None for nothing. `path` is in parts that are not quoted.

        Raises ManagementRefused, ManagementAway and ManagementUnreadable.
        """
        return self.request(method, "/".join(quote(part, safe="") for part in path), query, body)

    def request(self, method: str, path: str, query: Mapping[str, str] | None = None, body: object = None) -> Any:
        """Do the same for a path that is quoted."""
        token = base64.b64encode(f"{self.user}:{self.password}".encode()).decode()
        made = urllib.request.Request(  # noqa: S310 - an address that the caller has checked
            f"{self.root}/{path}{'?' if query else ''}{urlencode(query or {})}",
            None if body is None else json.dumps(body).encode(),
            {"Authorization": f"Basic {token}", "Content-Type": "application/json"},
            method=method,
        )
        try:
            with self._opener().open(made, timeout=self.timeout) as answer:
                text = answer.read(foreign_json.MOST_BYTES_OF_ENGINES + 1)
            return foreign_json.read(text, most=foreign_json.MOST_BYTES_OF_ENGINES) if text else None
        except urllib.error.HTTPError as error:
            raise ManagementRefused(method, path, error.code, _text_of(error)) from None
        except OSError as error:
            raise ManagementAway(f"no management API at {self.url}: {getattr(error, 'reason', error)}") from error
        except (ValueError, http.client.HTTPException) as error:
            raise ManagementUnreadable(f"{self.url} does not answer as RabbitMQ's management API: {error}") from error

    def find(self, *path: str, query: Mapping[str, str] | None = None) -> Any:
        """Return what is at a path, None where nothing is. Raises as `call`."""
        try:
            return self.call("GET", *path, query=query)
        except ManagementRefused as error:
            if error.status != http.HTTPStatus.NOT_FOUND:
                raise
            return None

    def _opener(self) -> urllib.request.OpenerDirector:
        handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({}), _NoRedirect()]
        if self.root.startswith("https:"):
            handlers.append(urllib.request.HTTPSHandler(context=self.tls or ssl.create_default_context()))
        return urllib.request.build_opener(*handlers)


def _text_of(error: urllib.error.HTTPError) -> str:
    with error:
        try:
            return error.read(_MOST_TEXT_BYTES).decode(errors="replace")
        except (OSError, ValueError, http.client.HTTPException):
            return ""
