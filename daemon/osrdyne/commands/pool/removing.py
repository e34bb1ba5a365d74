"""Takes a pool away from a broker, unless something uses it or messages would be lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from osrdyne.broker.management_api import ManagementApi
from osrdyne.errors import ManagementError
from osrdyne_pool.broker.changes import name, others
from osrdyne_pool.broker.management_json import requests
from osrdyne_pool.topology import Topology
from osrdyne_protocol.names import PoolNames
from osrdyne_runtime.console.output import CannotAsk

#: How often it looks for numbers that the broker does not know, and for how many seconds at least: a new stream has
#: none until its next tick, which comes each 5 s.
_LOOKS: Final = 4
_PATIENCE_SECONDS: Final = 10.0
#: Kinds that a broker deletes with what they belong to; queues are deleted before all else.
_GO_WITH_OTHERS: Final = ("queues", "bindings", "user-limits")


async def remove(
    api: ManagementApi, declared: Topology, *, with_messages: bool, interval: float, done: Callable[[str], None]
) -> None:
    """Delete all that is declared, and the queues that the pool's programs declared. `interval` is in seconds.

    Raises CannotAsk, before anything is deleted, where a queue has consumers, or holds messages without
    `with_messages`. Messages that come while it looks are found, too: the exchange for requests goes first, and comes
    back where there are any. Raises CannotAsk, too, where it cannot come back.
    """
    names = PoolNames(declared.pool)
    live = await api.topology(with_users=bool(declared.users))
    for looked in range(max(_LOOKS, round(_PATIENCE_SECONDS / interval))):
        held = (await api.held(names)).values()
        # Consumers that went are counted for an interval, and a new queue has no numbers for about two.
        if not any(None in numbers or (numbers[1] and not looked) for numbers in held):
            break
        await asyncio.sleep(interval)
    await _refuse(api, names, with_messages=with_messages)
    deleting = asyncio.create_task(api.send("DELETE", "exchanges", api.vhost, names.request_exchange))
    try:
        there = await asyncio.shield(deleting)
        await asyncio.sleep(interval)
        await _refuse(api, names, with_messages=with_messages)
    except BaseException as error:  # Ctrl-C, too
        await asyncio.gather(deleting, return_exceptions=True)  # else it could come after what follows
        await _restore(api, live, names.request_exchange, error)
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
    if unknown := [queue for queue, (_, many) in sorted(held.items()) if many is None]:
        raise CannotAsk(
            f"the number of consumers is not known, and nothing was removed: {', '.join(unknown)}; wait for some "
            f"seconds and run this again; delete a queue by hand if the broker has lost it"
        )
    full = [f"{queue} holds {_counted(many, 'message')}" for queue, (many, _) in sorted(held.items()) if many != 0]
    if full and not with_messages:
        raise CannotAsk(
            f"messages would be lost, and nothing was removed: {', '.join(full)}; let them be answered, look at them "
            f"with `osrdyne poison list`, or give them up with --with-messages"
        )


async def _restore(api: ManagementApi, live: Topology, exchange: str, why: BaseException) -> None:
    """Declare the exchange for requests again, with the queues of keys that were bound to it.

    Raises CannotAsk where that fails.
    """
    bound = tuple(binding for binding in live.bindings if binding.exchange == exchange and binding.to == "queue")
    of_keys = Topology(tuple(there for there in live.exchanges if there.name == exchange), (), bound, ())
    try:
        for request in reversed(requests(of_keys, api.vhost)):
            await api.send(request.method, *request.path, body=request.body)
    except ManagementError as error:
        reason = "" if str(why) in ("", str(error)) else f"{why}; then "
        raise CannotAsk(
            f"{reason}{error}; exchange {exchange} may be gone, without which no request is taken: run `osrdyne pool "
            f"apply`, and the daemon binds each key again at its next request"
        ) from why


def _counted(number: int | None, what: str) -> str:
    return f"{'an unknown number of' if number is None else number} {what}{'' if number == 1 else 's'}"
