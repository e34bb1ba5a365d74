"""The login that RabbitMQ makes where it is given no other: an administrator guest with the password guest. Pure.

It works from the broker's own machine only, but there for every program and every account.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from typing import Any

#: Name of that user, and its password.
NAME = "guest"
#: Hash functions of RabbitMQ's password_hash: base64 of four bytes of salt and hash(salt + password).
_HASHES = {"rabbit_password_hashing_sha256": hashlib.sha256, "rabbit_password_hashing_sha512": hashlib.sha512}


def problem(user: Mapping[str, Any]) -> str:
    """Return what is wrong and what to do if a user, as the management API shows it, is this login; else nothing.

    An empty mapping stands for no user. Raises ValueError or TypeError for what a RabbitMQ never answers.
    """
    if user.get("name") != NAME or not is_password(user, NAME):
        return ""
    tags = user.get("tags") or "none"
    shown = tags if isinstance(tags, str) else ", ".join(map(str, tags))
    return (
        f"user {NAME} has the password {NAME}, and the tags {shown}: every account of the broker's machine can log in "
        f"with it; give each program that uses it a user of its own, then run `rabbitmqctl delete_user {NAME}`"
    )


def is_password(user: Mapping[str, Any], password: str) -> bool:
    """Return whether a user, as the management API shows it, has this password. Raises as `problem`."""
    digest = _HASHES.get(str(user.get("hashing_algorithm")))
    stored = base64.b64decode(str(user.get("password_hash") or ""))
    return digest is not None and stored[4:] == digest(stored[:4] + password.encode()).digest()
