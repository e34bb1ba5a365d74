"""The database of one pool's jobs, with its two users, on a PostgreSQL server that is there.

`osrdyne_jobs.database.preparation` makes it, from this machine: the administrator's password reaches no pod. When the
pool goes, its users can no longer log in, and the database stays with its jobs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pulumi
from pulumi import dynamic

from osrdyne_infra.configuration import EXAMPLES, StackSettings
from osrdyne_infra.errors import ConfigurationError, DatabaseUnusable
from osrdyne_infra.guard import Provider, kept, known_later, plainly
from osrdyne_infra.jobs import settings as jobs_settings
from osrdyne_infra.jobs.settings import ROLES
from osrdyne_infra.ordering import outer, own
from osrdyne_infra.package.resource import OwnResource
from osrdyne_infra.password import Password
from osrdyne_jobs.database.preparation import prepare, retire, roles_in_use
from osrdyne_jobs.errors import NotPrepared
from osrdyne_protocol.names import DatabaseNames


class _Databases(Provider):
    """Makes database, users and rights when it is made and when it is changed."""

    def check(self, olds: dict[str, Any], news: dict[str, Any]) -> dynamic.CheckResult:
        """Look, in a preview too, whether the server answers, and whether another deployment uses what is new here."""
        if news["adopt"] or olds.get("users") == news["users"] or known_later(news["admin"]):
            return dynamic.CheckResult(news, [])
        with _plainly():
            used = roles_in_use(news["admin"], *news["users"])
        if not used:
            return dynamic.CheckResult(news, [])
        problem = (
            f"users {', '.join(used)} are on the database server already, and not of this stack: a pool of this name "
            f"and instance uses them; name another instance in osrdyne:instance, or set osrdyne:adopt where none does"
        )
        return dynamic.CheckResult(news, [dynamic.CheckFailure("users", problem)])

    def create(self, props: dict[str, Any]) -> dynamic.CreateResult:
        try:
            made = self.apply(props)
        except BaseException:
            # What is half made is not in the state; the next `up` must not take it for another deployment's.
            if not props["adopt"]:
                with suppress(NotPrepared):
                    retire(props["admin"], *props["users"])
            raise
        return dynamic.CreateResult(props["users"][0], made)

    def apply(self, props: dict[str, Any]) -> dict[str, Any]:
        with _plainly():
            prepare(props["admin"], props["owner"], props["programs"])
        return kept(props)

    def replaces(self, olds: dict[str, Any], news: dict[str, Any]) -> list[str]:
        return ["users"] if olds["users"] != news["users"] else []

    def delete(self, id_: str, props: dict[str, Any]) -> None:
        with _plainly():
            retire(props["admin"], *props["users"])


@contextmanager
def _plainly() -> Iterator[None]:
    with plainly():
        try:
            yield
        except NotPrepared as error:
            raise DatabaseUnusable(
                f"{error}. The server is that of osrdyne:jobs.database, and its administrator's password is "
                f"osrdyne:jobs_admin_password"
            ) from None


class JobsDatabase(pulumi.ComponentResource):
    """The database of one pool, by default that of its name. `addresses` are secret, by role: those of its programs."""

    def __init__(
        self, name: str, settings: StackSettings, opts: pulumi.ResourceOptions | None = None, *, pool: str | None = None
    ) -> None:
        declared = settings.pool(pool or name)
        place, names = settings.jobs, DatabaseNames.of(declared.name, declared.instance)
        if place is None or declared.jobs is None:
            problem = f"is missing, or pool {declared.name} has no jobs"
            raise ConfigurationError("osrdyne:jobs", problem, EXAMPLES["jobs"])
        super().__init__("osrdyne:jobs:JobsDatabase", name, None, outer(opts))
        turns = settings.rotate.get(declared.name, {})
        in_pods = settings.cluster is not None
        here = pulumi.ResourceOptions(parent=self)
        outside: dict[str, pulumi.Output[str]] = {}
        self.addresses: dict[str, pulumi.Output[str]] = {}
        for role in ROLES:
            user = jobs_settings.user(names, role)
            password = Password(own(name, declared.name, user), turns.get(role, "1"), here).password
            outside[role] = _secret(password, lambda word, user=user: place.outside_address(user, word, names.database))
            self.addresses[role] = _secret(
                password,
                lambda word, user=user: place.inside_address(user, word, names.database, in_pods=in_pods),
            )
        inputs = {
            "admin": _secret(pulumi.Output.from_input(settings.jobs_admin_password), place.admin_address),
            "owner": outside["jobs-owner"],
            "programs": outside["jobs"],
            "users": [names.database, names.owner],
            "adopt": settings.adopt,
        }
        self.made = _Database(own(name, declared.name, names.database), inputs, here)
        self.register_outputs({})


def _secret(password: pulumi.Output[str], address: Any) -> pulumi.Output[str]:
    return pulumi.Output.secret(password.apply(address))


class _Database(OwnResource, kind="JobsDatabase", provider=_Databases):
    """Ensures that database, users and rights are there."""

    def __init__(self, name: str, inputs: dict[str, Any], opts: pulumi.ResourceOptions) -> None:
        super().__init__(name, inputs, opts)
