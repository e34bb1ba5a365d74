"""What a role includes of another one does not take the place of that one's handlers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

import steps

ROLES = steps.ROOT / "roles"


def included(folder: Path) -> list[dict[str, Any]]:
    """What the tasks of a role include of other roles while they run; `stop` starts nothing."""
    tasks = [task for file in folder.glob("tasks/*.yml") for task in yaml.safe_load(file.read_text())]
    found = [task["ansible.builtin.include_role"] for task in tasks if "ansible.builtin.include_role" in task]
    return [role for role in found if role.get("tasks_from", "main") != "stop"]


def test_a_role_with_handlers_is_included_without_them() -> None:
    with_handlers = {f"osrdyne.pool.{handlers.parent.parent.name}" for handlers in ROLES.glob("*/handlers/main.yml")}
    assert with_handlers
    found = [(folder.name, role) for folder in ROLES.iterdir() for role in included(folder)]
    assert [
        include
        for include in found
        if include[1]["name"] in with_handlers and include[1].get("handlers_from") != "none"
    ] == []
    assert with_handlers & {role["name"] for _, role in found}
