"""The broker's management API: which request queues there are, and how many messages are in them.

Only `send` changes something. The daemon never calls it; the commands of `osrdyne pool` do.

Each call runs in a thread, because `osrdyne_pool.broker.management` blocks. The API's message counts are some seconds
old, and each decision allows for that (docs/reference/rabbitmq-facts.md#counts-that-come-late). Errors become
`ManagementError` here, with what, where and what to do, and without the password.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import SplitResult, quote, unquote, urlsplit

from osrdyne.errors import ManagementError
from osrdyne.state.values import QueueTotals
from osrdyne_amqp.address import Address, present
from osrdyne_amqp.connecting import tls
from osrdyne_amqp.errors import BrokerError
from osrdyne_pool.broker import management, management_json, quorum
from osrdyne_pool.topology import Topology, own_key
from osrdyne_protocol import foreign_json
from osrdyne_protocol.errors import causes
from osrdyne_protocol.names import PoolNames
from osrdyne_runtime import addresses
from osrdyne_runtime.outages import OutageLog

log = logging.getLogger(__name__)

_PAGE_SIZE = 500
#: Limit on pages: no broker has that many queues, but another server at this address may answer without end.
_MOST_PAGES = 2000
#: Reads under way at once. Changes by `send` are not counted.
_MOST_CALLS = 4
_DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class RequestQueue:
    """A queue of the pool as the broker lists it; `totals` is None while the broker has no statistics for it."""

    name: str
    #: None for a queue that osrdyne did not declare: it has another type, or lacks the key that belongs to its name.
    key: str | None
    totals: QueueTotals | None


#: Path that answers 503 and names the alarms, if there are any.
_ALARMS = "health/checks/alarms"


class ManagementApi:
    """Reads a vhost and, by `send`, changes it. Methods raise only `ManagementError`, whatever the server answers."""

    def __init__(self, address: Address, vhost: str, *, timeout: float = 10.0) -> None:
        """Take an address with credentials, `http://user:password@host:15672`, or a function that returns it.

        The function is called before each call, so that a changed password takes effect at once. The password is never
        shown. With `https`, the query names the files of `osrdyne_amqp.connecting.tls`. `timeout`: seconds for a call.
        """
        self._address = address
        self._timeout = timeout
        self._calls = asyncio.Semaphore(_MOST_CALLS)
        #: The virtual host that is read.
        self.vhost = vhost
        #: What is logged while it does not answer. It is here because this outlives each session.
        self.outage = OutageLog(log, "the management API")
        self._vhost = quote(vhost, safe="")
        self._server = self._current_server(None)

    def _current_server(self, known: _Server | None) -> _Server:
        try:
            uri = present(self._address)
            return known if known and known.uri == uri else _Server.of(uri, self._timeout)
        except BrokerError as error:
            raise ManagementError(f"management_uri: {error}") from None

    async def totals(self, queue: str) -> QueueTotals | None:
        """Return a queue's message counts and its number of bindings; None when the queue does not exist.

        Raises `ManagementError` also when the broker has no statistics for the queue yet.
        """
        name = quote(queue, safe="")
        try:
            raw = await self._get(f"queues/{self._vhost}/{name}", management.FRESH_TOTALS)
            bindings = await self._get(f"queues/{self._vhost}/{name}/bindings")
        except _NotFound:
            return None
        with self._reading("a queue"):
            found = _totals(raw, sum(1 for binding in bindings if binding.get("source")))
        if found is None:
            raise ManagementError(f"{self._server.where} has no statistics of queue {queue} yet")
        return found

    async def members(self, queue: str) -> tuple[quorum.Member, ...] | None:
        """Return the states of a quorum queue's members; None when there is no such quorum queue.

        Raises `ManagementError` also while the broker does not know them, for example while it starts the queue.
        """
        try:
            answer = await self._get(f"queues/quorum/{self._vhost}/{quote(queue, safe='')}/status")
        except _NotFound:
            return None
        with self._reading("the members of a quorum queue"):
            return quorum.read(answer)

    async def request_queues(self, names: PoolNames) -> list[RequestQueue]:
        """Return every queue whose name is that of a request queue of the pool."""
        found: list[RequestQueue] = []
        params = {
            "name": f"^{names.request_queue_prefix}",
            "use_regex": "true",
            "page_size": str(_PAGE_SIZE),
            "columns": "name,type,arguments,messages_ready,messages_unacknowledged,consumers,message_stats.deliver_get",
        }
        page, pages = 1, 1
        while page <= pages:
            answer = await self._get(f"queues/{self._vhost}", params | {"page": str(page)})
            with self._reading("a page of queues"):
                pages = int(answer.get("page_count", 1))
                if pages > _MOST_PAGES:
                    raise ValueError(pages)
                listed = [_request_queue(raw) for raw in answer["items"]]
                found += [queue for queue in listed if queue.name.startswith(names.request_queue_prefix)]
            page += 1
        return found

    async def depths(self, names: PoolNames) -> dict[str, int]:
        """Return how many messages are in the queues of `names.counted`, by name. The counts are some seconds old.

        A queue that does not exist, or has no statistics yet, is left out.
        """
        params = {
            "name": f"^({'|'.join(names.counted)})$",
            "use_regex": "true",
            "page": "1",
            "page_size": "10",
            "columns": "name,messages",
        }
        answer = await self._get(f"queues/{self._vhost}", params)
        with self._reading("a page of queues"):
            return {raw["name"]: raw["messages"] for raw in answer["items"] if isinstance(raw.get("messages"), int)}

    async def listeners(self, queue: str) -> dict[str, str]:
        """Return the user of each connection that consumes a queue, by its name. The answer is some seconds old."""
        try:
            answer = await self._get(f"queues/{self._vhost}/{quote(queue, safe='')}")
        except _NotFound:
            return {}
        with self._reading("the consumers of a queue"):
            channels = [consumer["channel_details"] for consumer in answer.get("consumer_details", ())]
            return {channel["connection_name"]: channel["user"] for channel in channels if channel}

    async def alarm(self) -> str | None:
        """Return the resources for which the broker has an alarm (`memory`, `disk`), None when it has none.

        The broker notifies a connection only once that connection publishes; an idle one has to poll.
        """
        try:
            await self._get(_ALARMS)
        except _Alarm as alarm:
            return str(alarm)
        return None

    async def topology(self, *, with_users: bool = False) -> Topology:
        """Return the vhost's objects as a topology. Only an administrator can read users and permissions."""
        vhost = self._vhost
        try:
            exchanges = await self._get(f"exchanges/{vhost}")
        except _NotFound:
            raise ManagementError(
                f"no virtual host '{unquote(vhost)}' at {self._server.where} that user '{self._server.user}' can see; "
                "check its name, and the user's permissions on it"
            ) from None
        listings = {
            "exchanges": exchanges,
            "queues": await self._get(f"queues/{vhost}", {"columns": "name,type,arguments"}),
            **{
                kind: await self._get(f"{kind}/{vhost}")
                for kind in ("bindings", "policies", "operator-policies", "vhost-limits")
            },
            "users": await self._get("users") if with_users else [],
            "permissions": await self._get(f"vhosts/{vhost}/permissions") if with_users else [],
        }
        with self._reading("the objects of a virtual host"):
            return management_json.read(listings)

    async def held(self, names: PoolNames) -> dict[str, tuple[int | None, int | None]]:
        """Return the messages and consumers of each queue of a pool: None for a number that the broker does not know.

        A stream counts as empty. Messages may be half a statistics interval old, consumers a whole one.
        """
        counted = await self._get(f"queues/{self._vhost}", management.FRESH_TOTALS)
        listed = await self._get(f"queues/{self._vhost}", {"columns": "name,consumers"})
        with self._reading("the queues of a virtual host"):
            consumers = {queue["name"]: queue.get("consumers") for queue in listed}
            return {
                queue["name"]: (
                    0 if queue["type"] == "stream" else queue.get("messages"),
                    consumers.get(queue["name"]),
                )
                for queue in counted
                if names.owns_queue(queue["name"])
            }

    async def find(self, *path: str) -> Any:
        """Return what is at a path, in parts that are not quoted yet; None where nothing is."""
        try:
            return await self._get("/".join(quote(part, safe="") for part in path))
        except _NotFound:
            return None

    async def send(self, method: str, *path: str, body: object = None) -> bool:
        """Make, change or delete what is at a path. Return False where what is to be deleted is not there."""
        try:
            await self._ask("/".join(quote(part, safe="") for part in path), None, method, body)
        except _NotFound:
            if method != "DELETE":
                raise
            return False
        return True

    async def _get(self, path: str, params: Mapping[str, str] | None = None) -> Any:
        # Few at a time: a hanging API must not take all threads of this process.
        async with self._calls:
            return await self._ask(path, params)

    async def _ask(self, path: str, params: Mapping[str, str] | None, method: str = "GET", body: object = None) -> Any:
        self._server = server = self._current_server(self._server)
        where = server.where
        try:
            return await asyncio.to_thread(server.request, method, path, params, body)
        except management.ManagementRefused as error:
            if error.status == 404:
                raise _NotFound(f"{where}/api/{path}: not found") from None
            alarmed = alarms(error.text) if path == _ALARMS else None
            if alarmed is not None:
                raise _Alarm(alarmed) from None
            hint = (error.status == 400 and error.reason) or "see the broker's log"
            if error.status in (401, 403):
                hint = _REFUSALS.get(error.reason, _REFUSED).format(user=f"user '{server.user}'")
            if 300 <= error.status < 400:
                hint = "it redirects, and a password follows no redirect; name the API's own address in management_uri"
            raise ManagementError(f"{where}/api/{path} answered {error.status}: {hint}") from None
        except management.ManagementAway as error:
            raise ManagementError(f"no management API at {where}: {_cause(error, server.options.cacertfile)}") from None
        except management.ManagementUnreadable as error:
            what = type(error.__cause__).__name__
            raise ManagementError(
                f"{where}/api/{path} answered what cannot be read ({what}); {_OTHER_SERVER}"
            ) from None
        except BrokerError as error:
            raise ManagementError(f"management_uri: {error}") from None

    @contextlib.contextmanager
    def _reading(self, what: str) -> Iterator[None]:
        """Raise `ManagementError` for an answer without the shape of RabbitMQ's: another server sent it."""
        try:
            yield
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
            raise ManagementError(
                f"{self._server.where} answered what is not {what} ({type(error).__name__}: {str(error)[:100]}); "
                f"{_OTHER_SERVER}"
            ) from error


async def never_led(api: ManagementApi, queue: str) -> bool | None:
    """Return whether a quorum queue exists and its members never had a leader: see `osrdyne_pool.broker.quorum`.

    None if the broker cannot say, for example while it starts the queue.
    """
    try:
        members = await api.members(queue)
    except ManagementError:
        return None
    return members is not None and quorum.never_led(members)


@dataclass(frozen=True, slots=True)
class _Server:
    """Address and user of the management API."""

    uri: str = field(repr=False)
    where: str
    user: str
    options: tls.TlsOptions
    client: management.ManagementClient

    @classmethod
    def of(cls, uri: str, timeout: float) -> _Server:
        """Raises `ManagementError`, and BrokerError for TLS options; neither shows the password."""
        parts = _split(uri)
        options, rest = tls.take(parts.query)
        if rest or (parts.scheme == "http" and not options.is_default) or options.external:
            raise ManagementError(
                "management_uri has an option that it cannot have; with https there are cacertfile, certfile and "
                "keyfile, and a password is always needed"
            )
        if not options.is_default:
            options.context()  # raises an error that names an unusable file
        host = f"[{parts.hostname}]" if ":" in str(parts.hostname) else parts.hostname
        where = f"{parts.scheme}://{host}:{parts.port or _DEFAULT_PORTS[parts.scheme]}"
        user = unquote(parts.username or "")
        client = management.ManagementClient(where + parts.path, user, unquote(parts.password or ""), timeout=timeout)
        return cls(uri, where, user, options, client)

    def request(self, method: str, path: str, params: Mapping[str, str] | None, body: object) -> Any:
        """Ask, over TLS with the files as they are now. Raises the errors of the client, and BrokerError for a file."""
        client = self.client if self.options.is_default else replace(self.client, tls=self.options.context())
        return client.request(method, path, params, body)


def _split(uri: str) -> SplitResult:
    wrong = addresses.problem(uri, *_DEFAULT_PORTS)
    if wrong or urlsplit(uri).username is None:
        raise ManagementError(
            f"management_uri {wrong or 'names no user'}; it looks like http://user:password@host:15672, or https://"
        )
    return urlsplit(uri)


_OTHER_SERVER = "is it RabbitMQ's management API that listens there?"
#: RabbitMQ's reasons for refusing a call (4.0 and 4.3), and the remedies.
_REFUSALS = {
    "Not_Authorized": "{user} is refused; check its name and password",
    "Not management user": "{user} has no tag for the management API; give it the tag 'management'",
    "Not administrator user": (
        "{user} may not see or change users, permissions and limits; that takes the tag 'administrator'"
    ),
    "User not authorised to access object": "{user} may not change policies; give it the tag 'policymaker'",
    "Access refused.": "{user} has no permission for that name; give it all permissions on the virtual host",
    "User not authorised to access virtual host": "{user} has no permissions on this virtual host",
}
_REFUSED = "{user} is refused; check its password, its tag 'management' and its permissions"


class _NotFound(ManagementError):
    """No such object."""


class _Alarm(ManagementError):
    """The broker has an alarm; the text names the resources."""


def _cause(error: BaseException, cacertfile: str | None) -> str:
    """Return the system's reason for a failed call, and what to do. The library's text only names its classes."""
    found = list(causes(error))
    for cause in found:
        if isinstance(cause, ssl.SSLError):
            return tls.problem(cause, cacertfile)
    texts = [cause.strerror for cause in found if isinstance(cause, OSError) and cause.strerror]
    return f"{texts[0] if texts else error.__cause__ or error}; is the broker up, with rabbitmq_management?"


def alarms(answer: str) -> str | None:
    """Return the resources that a failed alarm check names, for example `memory`; None when it names none."""
    try:
        found = {str(alarm["resource"]) for alarm in foreign_json.read(answer)["alarms"]}
    except (ValueError, TypeError, KeyError):
        return None
    return ", ".join(sorted(found)) or None


def _request_queue(raw: Mapping[str, Any]) -> RequestQueue:
    queue = management_json.queue(raw)
    return RequestQueue(queue.name, own_key(queue), _totals(raw, 0))


def _totals(raw: Mapping[str, Any], bindings: int) -> QueueTotals | None:
    ready, unacknowledged = raw.get("messages_ready"), raw.get("messages_unacknowledged")
    if not isinstance(ready, int) or not isinstance(unacknowledged, int):
        return None
    ours = own_key(management_json.queue(raw)) is not None
    # Dead letters on their way are counted only in the sum (docs/reference/rabbitmq-facts.md#counts-that-come-late).
    dead_lettering = max(0, int(raw.get("messages") or 0) - ready - unacknowledged)
    delivered = management_json.table(raw, "message_stats").get("deliver_get")
    return QueueTotals(
        ready,
        unacknowledged,
        int(raw.get("consumers") or 0),
        bindings,
        ours,
        dead_lettering,
        delivered if isinstance(delivered, int) else 0,
    )
