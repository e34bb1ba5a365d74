"""The broker's management API, as far as tests look at brokers through it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from osrdyne_pool.broker.management import FRESH_TOTALS, ManagementClient


class Management:
    """Calls of the HTTP API with one user's rights. An answer of 4xx or 5xx raises `ManagementRefused`."""

    def __init__(self, url: str, user: str, password: str) -> None:
        self._client = ManagementClient(url, user, password, timeout=30)
        # To delete a vhost with a thousand queues takes a busy broker a minute and more.
        self._deleting = replace(self._client, timeout=200)

    def call(self, method: str, *path: str, query: dict[str, str] | None = None, body: object = None) -> Any:
        """One request; `path` is given in parts, which are quoted here (a vhost is often "/")."""
        client = self._deleting if method == "DELETE" else self._client
        return client.call(method, *path, query=query, body=body)

    def get(self, *path: str, query: dict[str, str] | None = None) -> Any:
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
        found: dict[str, Any] | None = self._client.find("queues", vhost, name, query=FRESH_TOTALS)
        return found

    def add_vhost(self, name: str, user: str) -> None:
        """A vhost on which `user` may do everything. Queues are quorum queues unless declared otherwise."""
        self.put("vhosts", name, body={"default_queue_type": "quorum"})
        self.put("permissions", name, user, body={"configure": ".*", "write": ".*", "read": ".*"})
