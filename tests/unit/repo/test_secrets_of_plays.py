"""No task of a play shows what it writes for one account only: neither by `--diff` nor in a log."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

import steps

FILES = sorted(
    path.relative_to(steps.ROOT)
    for folder in ("roles", "playbooks", "examples")
    for path in Path(steps.ROOT, folder).rglob("*.yml")
)
WRITING = {"template", "copy", "blockinfile", "lineinfile", "replace", "assemble"}
#: Of this project, with passwords among their arguments, of which not all are named as such.
GIVEN_SECRETS = {"osrdyne_passwords", "osrdyne_files"}


def tasks(part: Any) -> Iterator[dict[str, Any]]:
    if isinstance(part, list):
        for task in part:
            yield from tasks(task)
    elif isinstance(part, dict):
        yield part
        for name in ("block", "rescue", "always", "tasks", "pre_tasks", "post_tasks"):
            yield from tasks(part.get(name))


def shows(task: dict[str, Any]) -> str | None:
    """What a task has to say so that it shows no secret; None where there is nothing to be said."""
    if task.get("no_log") is True:
        return None
    for name, given in task.items():
        module = name.rpartition(".")[2]
        if module in GIVEN_SECRETS:
            return "no_log: true"
        private = isinstance(given, dict) and re.fullmatch("0?[0-7]{2}0", str(given.get("mode", "")))
        if module in WRITING and private and task.get("diff") is not False:
            return "diff: false"
    return None


@pytest.mark.parametrize("file", FILES, ids=str)
def test_a_task_that_writes_what_others_may_not_read_shows_nothing_of_it(file: Path) -> None:
    read = yaml.safe_load(Path(steps.ROOT, file).read_text())
    assert {task.get("name"): said for task in tasks(read) if (said := shows(task))} == {}


def test_the_environment_of_workers_is_among_what_is_never_shown() -> None:
    specs = yaml.safe_load(Path(steps.ROOT, "roles/daemon/meta/argument_specs.yml").read_text())
    options = specs["argument_specs"]["main"]["options"]
    secret = {"daemon_credentials", "daemon_relay_address", "daemon_worker_environment"}
    assert {name for name in secret if not options[name].get("no_log")} == set()
