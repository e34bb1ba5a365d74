"""Resources that stand for no object: they only ask the broker before others of the stack are made or deleted.

`Claim` comes before all others and refuses what others have made. `Guard` comes right after the queues and is deleted
before them: it refuses to go while messages would be lost. It waits for nothing else, so that it is there
however the rest of an `up` fails. `StopGuard` asks the same and comes after all others: where a `destroy` is refused,
what runs for the pool goes on running. A plain `pulumi destroy` does not run the program, so all that a guard needs is
in the state.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pulumi
from pulumi import dynamic
from pulumi.output import Unknown

from osrdyne_infra.broker.management import Management
from osrdyne_infra.configuration import StackSettings
from osrdyne_infra.errors import DeploymentRefused, InfraError
from osrdyne_infra.package.resource import OwnResource
from osrdyne_infra.preflight import messages
from osrdyne_protocol.names import PoolNames


def access(settings: StackSettings) -> dict[str, Any]:
    """Return what either of them needs to ask the broker."""
    return {
        "url": settings.broker.management,
        "user": settings.broker.admin,
        "password": pulumi.Output.secret(settings.admin_password),
        "cacertfile": settings.broker.cacertfile,
        "vhost": settings.vhost,
    }


def known_later(value: object) -> bool:
    """Return whether an input of a resource is not known yet, as in the preview of an `up` that makes it."""
    return isinstance(value, Unknown)


def management(props: dict[str, Any]) -> Management:
    """Return the broker that the inputs of a resource name."""
    return Management(props["url"], props["user"], props["password"], props["cacertfile"])


class Provider(dynamic.ResourceProvider):
    """Applies its inputs when it is made and when they change, and keeps them."""

    def apply(self, props: dict[str, Any]) -> dict[str, Any]:
        """Do what they ask for, and return what is kept of them."""
        return kept(props)

    def create(self, props: dict[str, Any]) -> dynamic.CreateResult:
        return dynamic.CreateResult(props["vhost"], self.apply(props))

    def update(self, id_: str, olds: dict[str, Any], news: dict[str, Any]) -> dynamic.UpdateResult:
        return dynamic.UpdateResult(self.apply(news))

    def diff(self, id_: str, olds: dict[str, Any], news: dict[str, Any]) -> dynamic.DiffResult:
        # Nothing else counts: another release of Python or of this file writes the same provider differently.
        return dynamic.DiffResult(changes=kept(olds) != kept(news), replaces=self.replaces(olds, news))

    def replaces(self, olds: dict[str, Any], news: dict[str, Any]) -> list[str]:
        """Return the inputs that cannot change in place."""
        return []


def kept(props: dict[str, Any]) -> dict[str, Any]:
    """Return the inputs without Pulumi's own."""
    return {name: value for name, value in props.items() if not name.startswith("__")}


@contextmanager
def plainly() -> Iterator[None]:
    """Have Pulumi, which prints the traceback of what a provider raises, print the text of a refusal alone."""
    try:
        yield
    except InfraError:
        sys.tracebacklimit = 0
        raise


class _Claims(Provider):
    """Checks, in a preview too, that the vhost and the users that are new in the stack are not there yet."""

    def check(self, olds: dict[str, Any], news: dict[str, Any]) -> dynamic.CheckResult:
        # The broker's address does not count: the same broker may have got another one.
        known, problems = list(olds.get("users", [])), []
        if news["adopt"] or known_later(news["password"]):
            return dynamic.CheckResult(_claimed(known, news), [])
        with plainly():
            vhost_is_there = olds.get("vhost") != news["vhost"] and management(news).vhost_exists(news["vhost"])
            taken = [user for user in news["users"] if user not in known and management(news).user_exists(user)]
        if vhost_is_there:
            problems.append(
                f"vhost {news['vhost']} is on the broker already, and not of this stack; name another one in "
                f"osrdyne:vhost, or delete it: `rabbitmqctl delete_vhost {news['vhost']}`"
            )
        if taken:
            problems.append(
                f"users {', '.join(taken)} are on the broker already, and not of this stack: a pool of this name and "
                f"instance uses them; name another instance in osrdyne:instance, or delete each: `rabbitmqctl "
                f"delete_user {taken[0]}`"
            )
        return dynamic.CheckResult(
            _claimed(known, news), [dynamic.CheckFailure("vhost", problem) for problem in problems]
        )


def _claimed(known: list[str], news: dict[str, Any]) -> dict[str, Any]:
    # Users stay claimed when their pool goes: until they are deleted, which can fail, they are still the stack's.
    return {**news, "users": list(dict.fromkeys([*known, *news["users"]]))}


class Claim(OwnResource, kind="Claim", provider=_Claims):
    """Ensures that the vhost and the broker users of the stack belong to no other."""

    def __init__(self, name: str, settings: StackSettings, users: list[str], opts: pulumi.ResourceOptions) -> None:
        super().__init__(name, {**access(settings), "users": users, "adopt": settings.adopt}, opts)


class _Guards(Provider):
    """Refuses to be deleted while queues hold messages. With another vhost, the old one's guard is deleted too."""

    def replaces(self, olds: dict[str, Any], news: dict[str, Any]) -> list[str]:
        return ["vhost"] if olds["vhost"] != news["vhost"] else []

    def delete(self, id_: str, props: dict[str, Any]) -> None:
        with plainly():
            _refuse_losses(props)


def _refuse_losses(props: dict[str, Any]) -> None:
    broker, vhost = management(props), props["vhost"]
    if not broker.vhost_exists(vhost):
        return
    # The broker's counts are late: what was published just now shows in the second look only.
    for pause in (0.0, float(props["interval"])):
        time.sleep(pause)
        held = _held(broker.messages(vhost), props["pool"], props["lose"])
        if held:
            counts = ", ".join(f"{name} holds {messages(count)}" for name, count in sorted(held.items()))
            raise DeploymentRefused(
                f"queues of vhost {vhost} are not deleted, because messages would be lost: {counts}. Empty these "
                f"queues, or name their pools in osrdyne:lose_messages_of, run `pulumi up`, and try again"
            )


def _held(counts: dict[str, int], pool: str, lose: list[str]) -> dict[str, int]:
    ours = PoolNames(pool) if pool else None
    given_up = [PoolNames(pool) for pool in lose]
    return {
        name: count
        for name, count in counts.items()
        if (ours is None or ours.owns_queue(name)) and not any(names.owns_queue(name) for names in given_up)
    }


class Guard(OwnResource, kind="Guard", provider=_Guards):
    """Ensures that no message is deleted with the queues of a pool; without a pool, with any queue of the vhost."""

    def __init__(self, name: str, settings: StackSettings, pool: str, opts: pulumi.ResourceOptions) -> None:
        inputs = {
            **access(settings),
            "pool": pool,
            "lose": [name for name in settings.lose_messages_of if pool in ("", name)],
            "interval": settings.broker.statistics_interval,
        }
        super().__init__(name, inputs, opts)


class StopGuard(Guard, kind="StopGuard", provider=_Guards):
    """Asks what a `Guard` asks before anything that runs for the pool is stopped."""
