"""The resource that makes a pool's database, on a real PostgreSQL: what Pulumi has it do, in the order of a stack."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from osrdyne_infra.errors import DatabaseUnusable
from osrdyne_infra.jobs_database import _Databases
from osrdyne_protocol.names import DatabaseNames
from testbed.postgres import Postgres, PostgresFailed, quoted
from tests.jobs.conftest import postgres

__all__ = ["postgres"]


@dataclass
class Resource:
    """One pool's database."""

    server: Postgres
    names: DatabaseNames

    def inputs(self, **changes: Any) -> dict[str, Any]:
        database = self.names.database
        return {
            "admin": self.server.url("postgres"),
            "owner": self.server.url(database, self.names.owner, "owners-word"),
            "programs": self.server.url(database, database, "programs-word"),
            "users": [database, self.names.owner],
            "adopt": False,
            **changes,
        }

    def create(self, **changes: Any) -> dict[str, Any]:
        """As `up` does it for the first time: checked, and then made."""
        checked = _Databases().check({}, self.inputs(**changes))
        assert not checked.failures, checked.failures[0].reason
        return _Databases().create(checked.inputs).outs or {}

    def log_in(self, word: str = "programs-word") -> str:
        return self.server.psql("SELECT 1", self.names.database, self.names.database, word)


@pytest.fixture(autouse=True)
def whole_tracebacks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Undo afterwards what a refusal does to a process of Pulumi, which then ends: it sets this to 0."""
    monkeypatch.setattr(sys, "tracebacklimit", 1000, raising=False)


@pytest.fixture
def resource(postgres: Postgres) -> Iterator[Resource]:
    one = Resource(postgres, DatabaseNames.of("core", secrets.token_hex(4)))
    yield one
    postgres.psql(f"DROP DATABASE IF EXISTS {quoted(one.names.database)} WITH (FORCE)")
    for role in (one.names.database, one.names.owner):
        postgres.psql(f"DROP ROLE IF EXISTS {quoted(role)}")


def test_it_is_made_once_and_a_new_password_is_a_change_in_place(resource: Resource) -> None:
    state = resource.create()
    assert resource.log_in() == "1"
    same = _Databases().diff("x", state, resource.inputs())
    assert (same.changes, same.replaces) == (False, [])

    rotated = resource.inputs(programs=resource.inputs()["programs"].replace("programs-word", "new-word"))
    changed = _Databases().diff("x", state, rotated)
    assert (changed.changes, changed.replaces) == (True, [])
    _Databases().update("x", state, rotated)
    assert resource.log_in("new-word") == "1"


def test_another_instance_is_another_database(resource: Resource) -> None:
    state = resource.create()

    other = resource.inputs(users=["core-jobs.other", "core-jobs-owner.other"])
    assert _Databases().diff("x", state, other).replaces == ["users"]


def test_when_it_goes_no_user_can_log_in_and_the_jobs_stay(resource: Resource) -> None:
    state = resource.create()
    database, owner = resource.names.database, resource.names.owner
    resource.server.psql("CREATE TABLE kept (x INTEGER)", database, owner, "owners-word")

    _Databases().delete("x", state)

    with pytest.raises(PostgresFailed, match="not permitted to log in"):
        resource.log_in()
    # And a stack that makes it again has the same tables
    resource.create()
    assert resource.server.psql("SELECT count(*) FROM kept", database, database, "programs-word") == "0"


def test_users_of_another_deployment_are_refused_and_taken_where_that_is_said(resource: Resource) -> None:
    resource.create()

    checked = _Databases().check({}, resource.inputs())
    assert [failure.property for failure in checked.failures] == ["users"]
    assert f"users {resource.names.owner}, {resource.names.database} are on the database server already" in (
        checked.failures[0].reason
    )
    assert not _Databases().check({}, resource.inputs(adopt=True)).failures
    # And those of this stack are its own
    assert not _Databases().check(resource.inputs(), resource.inputs()).failures


def test_what_could_be_made_only_in_part_is_finished_by_the_next_one(resource: Resource) -> None:
    # Given a database of that name that another user owns
    resource.server.create_database(resource.names.database)
    with pytest.raises(DatabaseUnusable, match="is there, and belongs to osrdyne_admin"):
        resource.create()
    resource.server.drop_database(resource.names.database)

    resource.create()
    assert resource.log_in() == "1"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda _: "postgresql://root:s3cret@127.0.0.1:1/x", "Connection refused"),
        (lambda admin: admin.replace("osrdyne_admin:", "osrdyne_admin:s3cret"), "password authentication failed"),
    ],
)
def test_a_server_that_is_away_or_refuses_is_known_in_a_preview(resource: Resource, change: Any, why: str) -> None:
    with pytest.raises(DatabaseUnusable) as caught:
        _Databases().check({}, resource.inputs(admin=change(resource.server.url("postgres"))))

    assert why in str(caught.value)
    assert "osrdyne:jobs_admin_password" in str(caught.value)
    assert not any(word in str(caught.value) for word in ("s3cret", resource.server.admin_password, "-word"))
