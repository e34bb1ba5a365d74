"""The login guest with the password guest, as the management API shows users."""

from __future__ import annotations

import base64
import hashlib
from typing import Any

import pytest

from osrdyne_pool.broker import management_json
from osrdyne_pool.broker.default_login import problem


def user(name: str, password: str, algorithm: str = "sha256", tags: object = ("administrator",)) -> dict[str, Any]:
    salt = b"salt"
    stored = base64.b64encode(salt + hashlib.new(algorithm, salt + password.encode()).digest()).decode()
    hashing = f"rabbit_password_hashing_{algorithm}"
    return {"name": name, "password_hash": stored, "hashing_algorithm": hashing, "tags": tags}


@pytest.mark.parametrize("algorithm", ["sha256", "sha512"])
def test_guest_with_the_password_guest_is_named_with_its_tags_and_what_to_do(algorithm: str) -> None:
    said = problem(user("guest", "guest", algorithm))

    assert "user guest has the password guest, and the tags administrator" in said
    assert "`rabbitmqctl delete_user guest`" in said


def test_guest_without_tags_is_named_too() -> None:
    assert "the tags none" in problem(user("guest", "guest", tags=()))


def test_a_topology_that_is_read_with_users_says_so() -> None:
    users = [user("other", "guest"), user("guest", "guest")]

    assert management_json.read({"users": users}).default_login == problem(users[1]) != ""


@pytest.mark.parametrize(
    "other",
    [
        {},
        user("guest", "another word"),
        user("other", "guest"),
        {"name": "guest", "password_hash": "", "hashing_algorithm": "rabbit_password_hashing_sha256", "tags": ""},
        {**user("guest", "guest"), "hashing_algorithm": "rabbit_password_hashing_md5"},
    ],
    ids=["no user", "another password", "another user", "no password", "another hash"],
)
def test_there_is_no_warning_of_other_users_and_passwords(other: dict[str, Any]) -> None:
    assert problem(other) == ""
