"""Takes a pool away from a broker, unless something uses it or messages would be lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from osrdyne.broker.management_api import ManagementApi
from osrdyne_pool.broker.changes import name, others
from osrdyne_pool.broker.management_json import requests
from osrdyne_pool.topology import Topology
from osrdyne_protocol.names import PoolNames
from osrdyne_runtime.console.output import CannotAsk

#: Kinds that a broker deletes with what they belong to; queues are deleted before all else.
_GO_WITH_OTHERS: Final = ("queues", "bindings", "user-limits")


async def remove(
    api: ManagementApi, declared: Topology, *, with_messages: bool, interval: float, done: Callable[[str], None]
) -> None:
    """Delete all that is declared, and the queues that the pool's programs declared. `interval` is in seconds.

    Raises CannotAsk, before anything is deleted, where a queue has consumers, or holds messages without
    `with_messages`. Messages that come while it looks are found, too: the exchange for requests goes first, and comes
    back where there are any.
    """
    names = PoolNames(declared.pool)
    live = await api.topology(with_users=bool(declared.users))
    if any(messages is None for messages, _ in (await api.held(names)).values()):
        await asyncio.sleep(interval)  # a queue that was just declared has no counts yet
    await _refuse(api, names, with_messages=with_messages)
    there = await api.send("DELETE", "exchanges", api.vhost, names.request_exchange)
    try:
        await asyncio.sleep(interval)
        await _refuse(api, names, with_messages=with_messages)
    except BaseException:  # Ctrl-C, too
        await _restore(api, live, names.request_exchange)
        raise
    if there:
        done(f"exchange {names.request_exchange}")
    for queue, (messages, _) in (await api.held(names)).items():
        await api.send("DELETE", "queues", api.vhost, queue)
        done(f"queue {queue}" + (f", with {_counted(messages, 'message')}" if messages != 0 else ""))
    for request in reversed(requests(await _ours_alone(api, declared, live), api.vhost)):
        if request.path[0] not in _GO_WITH_OTHERS and await api.send("DELETE", *request.path):
            done(name(request))


async def _ours_alone(api: ManagementApi, declared: Topology, live: Topology) -> Topology:
    """Return what is declared without what others use: a user of another virtual host, and limits for other pools."""
    kept = []
    for user in declared.users:
        permissions = await api.find("users", user.name, "permissions") or []
        kept += [user.name] if any(granted["vhost"] != api.vhost for granted in permissions) else []
    unchanged = live.vhost_limits == declared.vhost_limits and not others(declared, live)
    return replace(
        declared,
        users=tuple(user for user in declared.users if user.name not in kept),
        # Those of a user who is deleted go with the user.
        permissions=tuple(granted for granted in declared.permissions if granted.user in kept),
        vhost_limits=declared.vhost_limits if unchanged else {},
    )


async def _refuse(api: ManagementApi, names: PoolNames, *, with_messages: bool) -> None:
    held = await api.held(names)
    used = [f"{queue} has {_counted(many, 'consumer')}" for queue, (_, many) in sorted(held.items()) if many]
    if used:
        raise CannotAsk(
            f"pool {names.pool} is in use, and nothing was removed: {', '.join(used)}; end its daemon and its workers, "
            f"wait for some seconds and run this again"
        )
    full = [f"{queue} holds {_counted(many, 'message')}" for queue, (many, _) in sorted(held.items()) if many != 0]
    if full and not with_messages:
        raise CannotAsk(
            f"messages would be lost, and nothing was removed: {', '.join(full)}; let them be answered, look at them "
            f"with `osrdyne poison list`, or give them up with --with-messages"
        )


async def _restore(api: ManagementApi, live: Topology, exchange: str) -> None:
    """Declare the exchange for requests again, with the queues of keys that were bound to it."""
    bound = tuple(binding for binding in live.bindings if binding.exchange == exchange and binding.to == "queue")
    of_keys = Topology(tuple(there for there in live.exchanges if there.name == exchange), (), bound, ())
    for request in reversed(requests(of_keys, api.vhost)):
        await api.send(request.method, *request.path, body=request.body)


def _counted(number: int | None, what: str) -> str:
    return f"{'an unknown number of' if number is None else number} {what}{'' if number == 1 else 's'}"
