"""A password that is made once and kept in the stack's state, encrypted."""

from __future__ import annotations

import secrets
from typing import Any

import pulumi
from pulumi import dynamic

from osrdyne_infra.package.resource import OwnResource


class _Provider(dynamic.ResourceProvider):
    """Makes 256 random bits of text; another `turn` makes another password in its place."""

    def create(self, props: dict[str, Any]) -> dynamic.CreateResult:
        return dynamic.CreateResult(
            secrets.token_hex(8), {"turn": props["turn"], "password": secrets.token_urlsafe(32)}
        )

    def diff(self, id_: str, olds: dict[str, Any], news: dict[str, Any]) -> dynamic.DiffResult:
        # Nothing else counts: another release of Python or of this file writes the same provider differently.
        changed = olds["turn"] != news["turn"]
        return dynamic.DiffResult(changes=changed, replaces=["turn"] if changed else [])


class Password(OwnResource, kind="Password", provider=_Provider):
    """The password of one broker user."""

    password: pulumi.Output[str]

    def __init__(self, name: str, turn: str, opts: pulumi.ResourceOptions) -> None:
        hidden = pulumi.ResourceOptions(additional_secret_outputs=["password"])
        merged = pulumi.ResourceOptions.merge(opts, hidden)
        super().__init__(name, {"turn": turn, "password": None}, merged)
