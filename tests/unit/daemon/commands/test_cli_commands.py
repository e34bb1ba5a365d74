"""The command line itself: which commands there are, and what each of them waits for."""

from __future__ import annotations

import subprocess
import sys

from testbed.command_line import osrdyne

CALLED = """
import sys
from osrdyne.commands.app import main
sys.argv = ["osrdyne", "call", "--help"]
try:
    main()
finally:
    print(*sys.modules)
"""


def test_a_command_does_not_wait_for_what_only_others_need() -> None:
    done = subprocess.run([sys.executable, "-c", CALLED], check=True, capture_output=True, text=True)

    loaded = set(done.stdout.split())
    assert "osrdyne.commands.call" in loaded
    assert not loaded & {"osrdyne.settings.daemon", "osrdyne.commands.replay.command", "osrdyne_pool.lint"}


def test_the_help_lists_every_command_with_what_it_does() -> None:
    listed = osrdyne("--help").out.decode().partition("Commands:\n")[2].splitlines()

    assert [line.split()[0] for line in listed] == [
        "daemon",
        "call",
        "status",
        "lint",
        "replay",
        "poison",
        "bus",
        "jobs",
        "relay",
    ]
    assert all(len(line.split()) > 2 for line in listed)


def test_the_error_for_a_mistyped_command_names_the_one_that_may_be_meant() -> None:
    done = osrdyne("statsu")

    assert done.code == 2
    assert "No such command 'statsu'. Did you mean 'status'?" in done.err
