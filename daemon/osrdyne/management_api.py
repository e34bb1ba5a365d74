"""The broker's management API, read only: which request queues there are, and what is in them.

The one module that speaks HTTP to the broker (through pyrabbit2, in a thread each call, because it blocks).
What it answers about messages is seconds late; whoever decides on it knows that (broker-facts, section 2).
Library exceptions become `ManagementError` here, with what, where and what to do, and without the password.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import pyrabbit2
import pyrabbit2.http

from osrdyne.errors import ManagementError
from osrdyne.queue_plan import Totals
from osrdyne_protocol import headers
from osrdyne_protocol.names import PoolNames
from osrdyne_protocol.topology import Binding, Exchange, Permission, Policy, Queue, Topology, User

_PAGE_SIZE = 500
#: Calls under way at once.
_CALLS = 4
#: Asks for a queue's own samples, which are younger than those of the API's aggregates.
_FRESH = {"disable_stats": "true", "enable_queue_totals": "true"}
_DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class RequestQueue:
    """A queue of the pool as the broker lists it; `totals` is None while the broker has no statistics of it."""

    name: str
    key: str | None
    totals: Totals | None


class ManagementApi:
    """Reads one vhost. Every method raises `ManagementError`."""

    def __init__(self, url: str, vhost: str, *, timeout: float = 10.0) -> None:
        """Take an address with credentials, `http://user:password@host:15672`; the password is never shown."""
        parts = urlsplit(url)
        if parts.scheme not in _DEFAULT_PORTS or not parts.hostname or parts.username is None:
            raise ManagementError(
                "management_uri must look like http://user:password@host:15672 (or https), percent-encoded"
            )
        self._where = f"{parts.scheme}://{parts.hostname}:{parts.port or _DEFAULT_PORTS[parts.scheme]}"
        self._user = unquote(parts.username)
        self._calls = asyncio.Semaphore(_CALLS)
        self._vhost = quote(vhost, safe="")
        self._client = pyrabbit2.http.HTTPClient(
            self._where.removeprefix(parts.scheme + "://") + parts.path.rstrip("/"),
            self._user,
            unquote(parts.password or ""),
            timeout=timeout,
            scheme=parts.scheme,
        )

    async def totals(self, queue: str) -> Totals | None:
        """Return what is in a queue, and how often it is bound; None when the queue does not exist.

        Raises `ManagementError` also when the broker has no statistics of the queue yet.
        """
        name = quote(queue, safe="")
        try:
            raw = await self._get(f"queues/{self._vhost}/{name}", _FRESH)
            bindings = await self._get(f"queues/{self._vhost}/{name}/bindings")
        except _NotFound:
            return None
        found = _totals(raw, sum(1 for one in bindings if one.get("source")))
        if found is None:
            raise ManagementError(f"{self._where} has no statistics of queue {queue} yet")
        return found

    async def request_queues(self, names: PoolNames) -> list[RequestQueue]:
        """Return every queue whose name is that of a request queue of the pool."""
        found: list[RequestQueue] = []
        params = {
            "name": f"^{names.request_queue_prefix}",
            "use_regex": "true",
            "page_size": str(_PAGE_SIZE),
            "columns": "name,arguments,messages_ready,messages_unacknowledged,consumers",
        }
        page, pages = 1, 1
        while page <= pages:
            answer = await self._get(f"queues/{self._vhost}", params | {"page": str(page)})
            pages = int(answer.get("page_count", 1))
            for one in answer["items"]:
                key = headers.text((one.get("arguments") or {}).get(headers.X_OSRDYNE_KEY))
                found.append(RequestQueue(one["name"], key, _totals(one, 0)))
            page += 1
        return found

    async def topology(self, *, with_users: bool = False) -> Topology:
        """Return the vhost's objects as a topology. Users and permissions take an administrator."""
        v = self._vhost
        try:
            exchanges = await self._get(f"exchanges/{v}")
        except _NotFound:
            raise ManagementError(
                f"no virtual host '{unquote(v)}' at {self._where} that user '{self._user}' can see; check its name, "
                "and the user's permissions on it"
            ) from None
        queues = await self._get(f"queues/{v}", {"columns": "name,type,arguments"})
        bindings = await self._get(f"bindings/{v}")
        policies = await self._get(f"policies/{v}")
        operator_policies = await self._get(f"operator-policies/{v}")
        users = await self._get("users") if with_users else []
        permissions = await self._get(f"vhosts/{v}/permissions") if with_users else []
        return Topology(
            tuple(Exchange(one["name"], one["type"], one["arguments"] or {}) for one in exchanges if one["name"]),
            tuple(Queue(one["name"], one["type"], _without_type(one["arguments"])) for one in queues),
            tuple(
                Binding(one["source"], one["destination"], one["routing_key"])
                for one in bindings
                if one["source"] and one["destination_type"] == "queue"
            ),
            _policies(policies),
            tuple(User(one["name"], "", tuple(_tags(one["tags"]))) for one in users),
            tuple(Permission(one["user"], one["configure"], one["write"], one["read"]) for one in permissions),
            operator_policies=_policies(operator_policies),
        )

    async def _get(self, path: str, params: Mapping[str, str] | None = None) -> Any:
        # Few at a time: an API that hangs must not take every thread that others of this process need.
        async with self._calls:
            return await self._ask(path, params)

    async def _ask(self, path: str, params: Mapping[str, str] | None) -> Any:
        try:
            return await asyncio.to_thread(self._client.do_call, path, "GET", params=params)
        except pyrabbit2.http.HTTPError as error:
            if error.status == 404:
                raise _NotFound(f"{self._where}/api/{path}: not found") from None
            hint = "see the broker's log"
            if error.status in (401, 403):
                hint = _REFUSALS.get(str(error.detail), _REFUSED).format(user=f"user '{self._user}'")
            raise ManagementError(f"{self._where}/api/{path} answered {error.status}: {hint}") from None
        except pyrabbit2.http.NetworkError as error:
            raise ManagementError(
                f"no management API at {self._where}: {_cause(error)}; is the broker up, with rabbitmq_management?"
            ) from None


#: What RabbitMQ says when it refuses a call (4.0 and 4.3), and what helps.
_REFUSALS = {
    "Not_Authorized": "{user} is refused; check its name and password",
    "Not management user": "{user} has no tag for the management API; give it the tag 'management'",
    "Not administrator user": "{user} may not list users and permissions; that takes the tag 'administrator'",
    "User not authorised to access virtual host": "{user} has no permissions on this virtual host",
}
_REFUSED = "{user} is refused; check its password, its tag 'management' and its permissions"


class _NotFound(ManagementError):
    """No such object."""


def _cause(error: BaseException) -> str:
    """Say why a call failed in the system's words; the library's text is a chain of its own classes."""
    inner: object = error.__context__
    for _ in range(6):
        if isinstance(inner, OSError) and inner.strerror:
            return inner.strerror
        if not isinstance(inner, BaseException):
            break
        nested = [one for one in (getattr(inner, "reason", None), *inner.args) if isinstance(one, BaseException)]
        inner = inner.__cause__ or (nested[0] if nested else inner.__context__)
    return str(error)


def _policies(raw: Iterable[Mapping[str, Any]]) -> tuple[Policy, ...]:
    return tuple(
        Policy(one["name"], one["pattern"], one["apply-to"], one["definition"], one["priority"]) for one in raw
    )


def _totals(raw: Mapping[str, Any], bindings: int) -> Totals | None:
    ready, unacknowledged = raw.get("messages_ready"), raw.get("messages_unacknowledged")
    if not isinstance(ready, int) or not isinstance(unacknowledged, int):
        return None
    return Totals(ready, unacknowledged, int(raw.get("consumers") or 0), bindings)


def _without_type(arguments: Mapping[str, Any] | None) -> dict[str, Any]:
    return {name: value for name, value in (arguments or {}).items() if name != "x-queue-type"}


def _tags(tags: str | list[str]) -> list[str]:
    return tags if isinstance(tags, list) else [one for one in tags.split(",") if one]
