"""What is on the broker, through its management API. Only reads, except for `mend` and `limits`.

Every failure is a BrokerError that says what to do, and never holds a
password.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from osrdyne_infra.errors import BrokerUnusable
from osrdyne_pool.broker import default_login, quorum
from osrdyne_pool.broker.management import FRESH_TOTALS, ManagementClient, ManagementRefused, ManagementUnreadable
from osrdyne_runtime import certificate_faults

#: Seconds to wait for one answer.
TIMEOUT_SECONDS = 15.0
#: The oldest RabbitMQ that the topology is made for.
OLDEST = (4, 0)


@dataclass(frozen=True)
class Management:
    """The API at an address, with one user's rights."""

    url: str
    user: str
    password: str
    cacertfile: str = ""

    def check(self) -> None:
        """Make sure that a new enough broker answers, and that this user may declare things there."""
        tags = self.get("whoami").get("tags", [])
        tags = tags if isinstance(tags, list) else str(tags).split(",")
        if "administrator" not in tags:
            raise BrokerUnusable(
                f"user {self.user} of the broker at {self.url} is not an administrator; name one in "
                f"osrdyne:broker.admin, or run `rabbitmqctl set_user_tags {self.user} administrator`"
            )
        version = str(self.get("overview").get("rabbitmq_version", ""))
        if not _is_new_enough(version):
            raise BrokerUnusable(f"the broker at {self.url} is RabbitMQ {version}; 4.0 or later is needed")

    def vhost_exists(self, vhost: str) -> bool:
        return self._call("vhosts", vhost) is not None

    def user_exists(self, user: str) -> bool:
        return self._call("users", user) is not None

    def default_login(self) -> list[dict[str, Any]]:
        """Return the user that RabbitMQ makes where it is given no other, if it is there."""
        found = self._call("users", default_login.NAME)
        return [found] if found else []

    def messages(self, vhost: str) -> dict[str, int]:
        """Return the queues of a vhost that hold messages, ready or unacknowledged, with their number."""
        found = self._call("queues", vhost, query=FRESH_TOTALS) or []
        return {queue["name"]: int(queue["messages"]) for queue in found if queue.get("messages")}

    def members(self, vhost: str, queue: str) -> tuple[quorum.Member, ...]:
        """Return what the members of a quorum queue say, none where there is no such queue."""
        answer = self._call("queues", "quorum", vhost, queue, "status") or []
        try:
            return quorum.read(answer)
        except (AttributeError, KeyError, TypeError):
            raise BrokerUnusable(f"{self.url} does not answer with the members of queue {queue}") from None

    def delete_queue(self, vhost: str, queue: str) -> None:
        """Delete a queue with all that it holds; nothing where it is gone."""
        self._call("queues", vhost, queue, method="DELETE")

    def declare_queue(self, vhost: str, queue: str, arguments: Mapping[str, Any]) -> None:
        self._call("queues", vhost, queue, method="PUT", body={"durable": True, "arguments": dict(arguments)})

    def bind(self, vhost: str, exchange: str, queue: str, routing_key: str) -> None:
        body = {"routing_key": routing_key, "arguments": {}}
        self._call("bindings", vhost, "e", exchange, "q", queue, method="POST", body=body)

    def set_limit(self, kind: str, owner: str, name: str, value: int) -> None:
        self._call(kind, owner, name, method="PUT", body={"value": value})

    def get(self, *path: str) -> Any:
        """Return what is at a path. Raises BrokerError where nothing is."""
        found = self._call(*path)
        if found is None:
            raise BrokerUnusable(f"{self.url} has no {'/'.join(path)}: is that RabbitMQ's management API?")
        return found

    def _call(
        self, *path: str, method: str = "GET", query: Mapping[str, str] | None = None, body: object = None
    ) -> Any:
        try:
            trusted = ssl.create_default_context(cafile=self.cacertfile) if self.cacertfile else None
            client = ManagementClient(self.url, self.user, self.password, trusted, TIMEOUT_SECONDS)
            return client.call(method, *path, query=query, body=body)
        except ManagementRefused as error:
            if error.status == HTTPStatus.NOT_FOUND and method in ("GET", "DELETE"):
                return None
            raise BrokerUnusable(self._refusal(error.status)) from None
        except (ManagementUnreadable, OSError) as error:  # ManagementAway is one
            raise BrokerUnusable(self._silence(error.__cause__ or error)) from None

    def _silence(self, error: BaseException) -> str:
        authority, setting = self.cacertfile or None, "osrdyne:broker.cacertfile"
        if fault := certificate_faults.fault(error, authority=authority, setting=setting):
            return f"the broker at {self.url} is not trusted: {fault}"
        return (
            f"no broker answers at {self.url} ({getattr(error, 'reason', error)}); start it, or name its API in "
            f"osrdyne:broker.management"
        )

    def _refusal(self, code: int) -> str:
        if code == 401:
            return (
                f"the broker at {self.url} does not let user {self.user} in: name or password is wrong, or the user "
                f"has no tag; give them in osrdyne:broker.admin and by `pulumi config set --secret admin_password`"
            )
        if 300 <= code < 400:
            return (
                f"what answers at {self.url} redirects ({code}), and a password follows no redirect; name the address "
                f"of the API itself in osrdyne:broker.management"
            )
        return f"the broker at {self.url} answers {code}; see its log"


def _is_new_enough(version: str) -> bool:
    parts = version.split(".")[:2]
    return all(part.isdigit() for part in parts) and tuple(map(int, parts)) >= OLDEST
