"""The program itself: which commands there are, and what each of them waits for."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from osrdyne_command.program import registered
from testbed.command_line import osrdyne

SHOWN = """
import sys
from osrdyne_command.program import main
sys.argv = ["osrdyne", *{words!r}]
try:
    main()
finally:
    print(*sys.modules)
"""


def loaded_by(*words: str) -> set[str]:
    """Run `osrdyne WORDS`, and return the modules that are loaded at its end."""
    done = subprocess.run([sys.executable, "-c", SHOWN.format(words=words)], check=True, capture_output=True, text=True)
    return set(done.stdout.rpartition("\n  ")[2].split())


@pytest.mark.parametrize("words", [(), ("jobs",), ("relay",), ("bus",), ("pipeline",), ("poison",), ("pool",)])
def test_a_list_of_commands_waits_for_none_of_them_and_for_no_engine_s_library(words: tuple[str, ...]) -> None:
    loaded = loaded_by(*words, "--help")

    assert "osrdyne_command.program" in loaded
    assert not loaded & {"pyspark", "pika", "proton", "sqlalchemy", "alembic", "aiohttp", "rich"}
    packages = [re.escape(command.module) for command in registered().values()]
    assert [name for name in loaded if re.match(rf"({'|'.join(packages)})\.", name)] == []


def test_a_command_does_not_wait_for_what_only_others_need() -> None:
    loaded = loaded_by("call", "--help")

    assert "osrdyne.commands.call" in loaded
    assert not loaded & {"osrdyne.settings.daemon", "osrdyne.commands.replay.command", "osrdyne_pool.lint"}


def test_the_help_lists_every_command_with_what_it_does() -> None:
    said = osrdyne("--help").out.decode().partition("Commands:\n")[2].splitlines()
    listed = [line for line in said if not line.startswith("   ")]

    assert [line.split()[0] for line in listed] == [
        "bus",
        "call",
        "daemon",
        "dev",
        "jobs",
        "lint",
        "new",
        "pipeline",
        "poison",
        "pool",
        "relay",
        "replay",
        "status",
    ]
    assert all(len(line.split()) > 2 for line in listed)


def test_the_error_for_a_mistyped_command_names_the_one_that_may_be_meant() -> None:
    done = osrdyne("statsu")

    assert done.code == 64
    assert "No such command 'statsu'. Did you mean 'status'?" in done.err
