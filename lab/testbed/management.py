"""The broker's management API, as far as tests look at brokers through it."""

from __future__ import annotations

import base64
import json
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import quote


class Management:
    """Calls of the HTTP API with one user's rights. An answer of 4xx or 5xx raises
    `urllib.error.HTTPError`.
    """

    def __init__(self, url: str, user: str, password: str) -> None:
        self._url = url
        self._token = base64.b64encode(f"{user}:{password}".encode()).decode()
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def call(self, method: str, *path: str, query: str = "", body: object = None) -> Any:
        """One request; `path` is given in parts, which are quoted here (a vhost is often "/")."""
        address = f"{self._url}/api/" + "/".join(quote(part, safe="") for part in path) + query
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(address, method=method, data=data)  # noqa: S310 - our own broker
        request.add_header("Authorization", f"Basic {self._token}")
        request.add_header("Content-Type", "application/json")
        try:
            # To delete a vhost with a thousand queues takes a busy broker a minute and more.
            with self._opener.open(request, timeout=200 if method == "DELETE" else 30) as answer:
                text = answer.read()
        except urllib.error.HTTPError as error:
            # Its own text is the status alone; the broker's reason is what tells.
            error.msg = f"{error.msg}: {error.read().decode(errors='replace')[:500]}"
            raise
        return json.loads(text) if text else None

    def get(self, *path: str, query: str = "") -> Any:
        return self.call("GET", *path, query=query)

    def put(self, *path: str, body: object) -> None:
        self.call("PUT", *path, body=body)

    def delete(self, *path: str) -> None:
        self.call("DELETE", *path)

    def queue(self, vhost: str, name: str) -> dict[str, Any] | None:
        """Totals of a queue (`messages`, `messages_ready`, `messages_unacknowledged`, ...), None if there
        is none.

        They come straight from the queue's own samples, which are the youngest that this API has.
        """
        try:
            found: dict[str, Any] = self.get(
                "queues", vhost, name, query="?disable_stats=true&enable_queue_totals=true"
            )
        except urllib.error.HTTPError as error:
            with error:
                if error.code == 404:
                    return None
            raise
        return found

    def add_vhost(self, name: str, user: str) -> None:
        """A vhost on which `user` may do everything. Queues are quorum queues unless declared otherwise."""
        self.put("vhosts", name, body={"default_queue_type": "quorum"})
        self.put("permissions", name, user, body={"configure": ".*", "write": ".*", "read": ".*"})
