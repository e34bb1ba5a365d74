"""The limits that a broker keeps for a pool: of its users, and of its virtual host. Pure.

They bound what one peer can take from all others. No program of the pool comes near them; the numbers of clients,
workers and groups are settings of the pool.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

from osrdyne_pool.settings import PoolLimits, PoolSettings

Limits = Mapping[str, int]

#: Connections of the users that a pool has few programs of: daemons with their standbys, readers of events, persons.
_FEW_CONNECTIONS = 64
#: Channels of a connection. Beyond its limit of channels, a broker closes the connection that asks for one more, so
#: there is room for all that a client opens (`osrdyne_amqp.lanes`).
_CHANNELS = 100
#: Request queues are beside the static ones and the locks, which are fewer than this.
_STATIC_QUEUES = 16


#: Roles that each have a broker user.
ROLES = ("client", "worker", "daemon", "monitor", "operator", "pipeline")


def of_user(pool: PoolLimits, role: str) -> Limits:
    """Return the limits of the broker user of a role."""
    connections = {"client": pool.client_connections, "worker": pool.worker_connections}
    most = connections.get(role, _FEW_CONNECTIONS)
    return {"max-channels": most * _CHANNELS, "max-connections": most}


def of_virtual_host(pool: PoolSettings) -> Limits:
    """Return what a pool and its neighbours need together of their virtual host."""
    return together(map(_alone, (pool.limits, *pool.neighbours.values())))


def _alone(pool: PoolLimits) -> Limits:
    """Return what one pool needs.

    A client has a reply queue. That of a client that was killed stays for minutes, so there is room for as many again.
    """
    return {
        "max-connections": sum(of_user(pool, role)["max-connections"] for role in ROLES),
        "max-queues": _STATIC_QUEUES + pool.groups + 2 * pool.client_connections,
    }


def together(each: Iterable[Limits]) -> Limits:
    """Return what several pools need of the virtual host that they share."""
    return dict(sum(map(Counter, each), Counter[str]()))


def largest(each: Iterable[Limits]) -> Limits:
    """Return what satisfies each of several pools of a virtual host, which all count their neighbours."""
    result: dict[str, int] = {}
    for limits in each:
        result |= {name: max(value, result.get(name, 0)) for name, value in limits.items()}
    return result


def sharing(pools: Iterable[PoolSettings]) -> tuple[PoolSettings, ...]:
    """Return pools of one virtual host, each with the others as its neighbours."""
    given = tuple(pools)
    every = {user.name: user.limits for user in given}
    return tuple(
        replace(
            pool,
            neighbours={name: of for name, of in {**pool.neighbours, **every}.items() if name != pool.name},
        )
        for pool in given
    )
