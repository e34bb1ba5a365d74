"""What a Redis that a relay has for itself needs: its settings, and the one user that it lets in. Pure.

Ansible and Pulumi write these, and `osrdyne relay redis` prints them. docs/howto/relay-nodes.md says why each is
needed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from osrdyne_relay.redis.transactions import COMMANDS

#: Lines of redis.conf. It keeps nothing on disk, refuses rather than evicts, and bounds what a node reads at once.
SETTINGS: Mapping[str, str] = {
    "save": '""',
    "appendonly": "no",
    "maxmemory-policy": "noeviction",
    "proto-max-bulk-len": "16777216",
}


def settings() -> str:
    """Return the lines of redis.conf."""
    return "".join(f"{name} {value}\n" for name, value in SETTINGS.items())


def rules(prefix: str) -> str:
    """Return the ACL rules of the user of a relay's nodes: its keys, its channels, and the commands that are used."""
    commands = ("multi", "exec", *sorted(COMMANDS), "subscribe", "unsubscribe", "ping")
    return " ".join([f"~{prefix}:*", f"&{prefix}:*", *(f"+{command}" for command in commands)])


def acl(prefix: str, password: str) -> str:
    """Return an ACL file that lets in the user of one relay, named like its prefix, and no other.

    It holds the SHA-256 of the password: it lets no reader in.
    """
    hashed = hashlib.sha256(password.encode()).hexdigest()
    return f"user default off\nuser {prefix} on #{hashed} {rules(prefix)}\n"
