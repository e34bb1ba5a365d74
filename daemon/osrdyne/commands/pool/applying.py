"""Reads what a broker lacks of a pool, refuses what would harm others, and makes the rest so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from osrdyne.broker.management_api import ManagementApi
from osrdyne.commands import lost_queues
from osrdyne.commands.pool.place import BrokerPlace
from osrdyne.commands.pool.users import AddressChange, UserFiles
from osrdyne_pool.broker import default_login
from osrdyne_pool.broker.changes import TopologyChange, changes, refusals
from osrdyne_pool.broker.management_json import ManagementRequest
from osrdyne_pool.differences import Difference
from osrdyne_pool.lint import lint
from osrdyne_pool.settings import PoolSettings
from osrdyne_pool.topology import Topology, topology
from osrdyne_runtime.console.output import CannotAsk

#: What a broker has of a virtual host that is not there.
_NOTHING = Topology((), (), (), ())
#: Something that is not as declared.
Change = TopologyChange | AddressChange
_EVERYTHING = {"configure": ".*", "write": ".*", "read": ".*"}


def declared_by(pool: PoolSettings, *, with_users: bool) -> Topology:
    """Return what is to be there. Raises CannotAsk for a topology that loses messages.

    Users, permissions and limits take an administrator.
    """
    whole = topology(pool)
    if findings := lint(whole):
        shown = "; ".join(f"{finding.object}: {finding.problem}" for finding in findings)
        raise CannotAsk(f"the topology is not sound: {shown}")
    return whole if with_users else replace(whole, users=(), permissions=(), vhost_limits={})


async def differences(
    api: ManagementApi, declared: Topology, files: UserFiles | None, *, new_passwords: bool
) -> list[Change]:
    """Return what must change. Raises CannotAsk where the pool would harm others, or a queue is lost.

    Where none of the users that are there has a file, they get other passwords with `new_passwords` only.
    """
    with_users = bool(declared.users)
    if with_users and await api.find("vhosts", api.vhost) is None:
        vhost = ManagementRequest("PUT", ("vhosts", api.vhost), {"description": "osrdyne"})
        found = [TopologyChange(vhost, (), missing=True), *changes(declared, _NOTHING, api.vhost)]
        return await _with_passwords(api, declared, found, files, new_passwords=new_passwords)
    live = await api.topology(with_users=with_users)
    reasons = [*refusals(declared, live, api.vhost)] if with_users else []
    ours = {f"queue {queue.name}" for queue in declared.queues}
    lost = await lost_queues.findings(api, declared, live)
    reasons += [f"{finding.object}: {finding.problem}" for finding in lost if finding.object in ours]
    if reasons:
        raise CannotAsk("; ".join(reasons))
    found = [*changes(declared, live, api.vhost)]
    return await _with_passwords(api, declared, found, files, new_passwords=new_passwords)


async def apply(
    api: ManagementApi,
    declared: Topology,
    place: BrokerPlace,
    files: UserFiles | None,
    done: Callable[[Change], None],
    *,
    new_passwords: bool = False,
) -> list[Change]:
    """Make a broker have a pool; `done` is called for each object. Raises CannotAsk before anything is changed."""
    found = await differences(api, declared, files, new_passwords=new_passwords)
    if stuck := [change for change in found if change.refused]:
        shown = "; ".join(f"{change}: {', '.join(map(str, change.values))}" for change in stuck)
        raise CannotAsk(f"a broker cannot change {shown}; empty it, delete it by hand and run this again")
    for change in found:
        if isinstance(change, AddressChange):
            change.make()
            done(change)
            continue
        request = change.request
        body = dict(request.body)
        if request.path[0] == "users" and files is not None:
            body["password"] = files.passwords[request.path[1]]
        await api.send(request.method, *request.path, body=body)
        if request.path[0] == "vhosts":
            await api.send("PUT", "permissions", api.vhost, place.user, body=_EVERYTHING)
        done(change)
    return found


async def _with_passwords(
    api: ManagementApi,
    declared: Topology,
    found: list[TopologyChange],
    files: UserFiles | None,
    *,
    new_passwords: bool,
) -> list[Change]:
    """Add files, which come first: they keep what users get. Add users whose password is not that of their file.

    A broker has a salted hash of it.
    """
    if files is None:
        return [*found]
    named = {change.request.path[1] for change in found if change.request.path[0] == "users"}
    added, others = [], []
    for user in declared.users:
        raw = await api.find("users", user.name)
        if raw is None or default_login.is_password(raw, files.passwords[user.name]):
            continue
        await _refuse_foreign(api, user.name)
        others.append(user.name)
        difference = Difference("password", "another", "that of its file")
        if user.name not in named:
            request = ManagementRequest("PUT", ("users", user.name), {"tags": ",".join(user.tags)})
            added.append(TopologyChange(request, (difference,), missing=False))
    if others and not files.known and not new_passwords:
        raise CannotAsk(
            f"the broker has user {', '.join(others)}, and {files.directory} has no address of them: programs that run "
            f"would be shut out; name the directory that has the addresses by --users, or add --new-passwords"
        )
    return [*files.changes, *added, *found]


async def _refuse_foreign(api: ManagementApi, user: str) -> None:
    """Users belong to the broker, not to a virtual host: a new password would shut out the pool with the old one."""
    listed = await api.find("users", user, "permissions") or []
    elsewhere = sorted(found["vhost"] for found in listed if found["vhost"] != api.vhost)
    if elsewhere:
        raise CannotAsk(
            f"user {user} has another password and serves virtual host {', '.join(elsewhere)}: a pool of this name is "
            f"there already; give this one another name or instance, or delete that user if that pool is gone"
        )
