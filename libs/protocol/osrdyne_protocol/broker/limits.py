"""The limits that a broker keeps for a pool: of its users, and of its virtual host. Pure.

They bound what one peer can take from all others. No program of the pool comes near them; the numbers of clients,
workers and groups are settings of the pool.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from osrdyne_protocol.settings import PoolSettings

Limits = Mapping[str, int]

#: Connections of the users that a pool has few programs of: daemons with their standbys, readers of events, persons.
_FEW_CONNECTIONS = 64
#: Channels of a connection. Beyond its limit of channels, a broker closes the connection that asks for one more, so
#: there is room for all that a client opens (`osrdyne_amqp.lanes`).
_CHANNELS = 100
#: Request queues are beside the static ones and the locks, which are fewer than this.
_STATIC_QUEUES = 16


def of_user(pool: PoolSettings, role: str) -> Limits:
    """Return the limits of the broker user of a role."""
    connections = {"client": pool.limits.client_connections, "worker": pool.limits.worker_connections}
    most = connections.get(role, _FEW_CONNECTIONS)
    return {"max-channels": most * _CHANNELS, "max-connections": most}


def of_virtual_host(pool: PoolSettings, roles: Iterable[str]) -> Limits:
    """Return what a pool with users of these roles needs of its virtual host. That of several pools adds up.

    A client has a reply queue. That of a client that was killed stays for minutes, so there is room for as many again.
    """
    return {
        "max-connections": sum(of_user(pool, role)["max-connections"] for role in roles),
        "max-queues": _STATIC_QUEUES + pool.limits.groups + 2 * pool.limits.client_connections,
    }


def together(each: Iterable[Limits]) -> Limits:
    """Return what several pools need of the virtual host that they share."""
    return dict(sum(map(Counter, each), Counter[str]()))
