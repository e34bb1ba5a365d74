"""The client for threads. The only module that imports urllib3."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from types import TracebackType
from typing import Self, Unpack

import urllib3
from urllib3.exceptions import ConnectTimeoutError, HTTPError, NewConnectionError, SSLError

from osrdyne_relay.client.addresses import BEYOND, CONNECT, Identity, Nodes, call_of, none_reached, response_of
from osrdyne_relay.errors import NodeLost, NodesAway, NodeStopping
from osrdyne_relay.keepalive import OPTIONS
from osrdyne_relay.messages import Request, Response

#: Connections to a node that are kept for the next call. More are opened where more threads call.
_KEPT = 32


class RelayClient:
    """Calls endpoints over nodes, from any number of threads. `with RelayClient(url, token=…) as client:`."""

    def __init__(self, urls: str | Sequence[str], **identity: Unpack[Identity]) -> None:
        """`urls`: one node, or several that stand for each other. Raises SettingsError."""
        self._nodes = Nodes(urls, **identity)
        self._pool = urllib3.PoolManager(
            maxsize=_KEPT, retries=False, ssl_context=self._nodes.tls, socket_options=list(OPTIONS)
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End the connections that are kept."""
        self._pool.clear()

    def call(
        self,
        endpoint: str,
        request: Request | bytes,
        *,
        timeout: float | None = None,
        pickup_timeout: float | None = None,
    ) -> Response:
        """Have a request run once by a worker that polls as `endpoint` at any node; return its response.

        `timeout`: seconds for all of it. `pickup_timeout`: seconds for which it may wait for a worker; without it, the
        node's setting. Raises a RelayError: docs/relay.md has a table. An exception in this thread, as by Ctrl-C, ends
        the connection, and so cancels the call.
        """
        path, headers, body = call_of(endpoint, request, timeout, pickup_timeout)
        within = urllib3.Timeout(connect=CONNECT, read=None if timeout is None else timeout + BEYOND)
        failures: dict[str, object] = {}
        for url in self._nodes.order():
            try:
                response = response_of(*self._ask(url + path, headers, body, within))
            except (NodesAway, NodeStopping) as error:
                failures[url] = error
            else:
                self._nodes.worked(url)
                return response
        raise none_reached(failures)

    def _ask(
        self, url: str, headers: dict[str, str], body: bytes, within: urllib3.Timeout
    ) -> tuple[int, dict[str, str], bytes]:
        try:
            answer = self._pool.request(
                "POST",
                url,
                headers={**headers, **self._nodes.authorization()},
                body=body,
                timeout=within,
                redirect=False,
                decode_content=False,
            )
        except HTTPError as error:
            refused = isinstance(error, SSLError) and isinstance(error.args[0], ssl.SSLCertVerificationError)
            if refused or isinstance(error, NewConnectionError | ConnectTimeoutError):
                raise NodesAway(str(error)) from error
            raise NodeLost(f"{NodeLost.__doc__} ({type(error).__name__})") from error
        return answer.status, dict(answer.headers), answer.data
