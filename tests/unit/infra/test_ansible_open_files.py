"""How many files a process may have open that a role starts where no systemd runs the machine."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

import steps
from testbed.plugins import plugin

#: What is wanted.
FILES = 3000
PRINT = "ulimit -S -n"
#: As rabbitmq-rootfs does it for the broker.
TOOL = f"""
import subprocess
from rabbitmq_rootfs import process
process.OPEN_FILES = {FILES}
process.allow_files()
subprocess.run(["sh", "-c", "{PRINT}"])
"""
Started = Callable[[int, int], int]


@pytest.fixture(params=["roles", "rabbitmq-rootfs"])
def started(request: pytest.FixtureRequest) -> Started:
    """Returns how many files a process gets, from the soft and hard limit of what starts it."""
    command = (
        plugin("filter/osrdyne.py").osrdyne_open_files(["sh", "-c", PRINT], FILES)
        if request.param == "roles"
        else [sys.executable, "-c", TOOL]
    )

    def run(soft: int, hard: int) -> int:
        limited = ["sh", "-c", f'ulimit -S -n {soft}; ulimit -H -n {hard}; exec "$@"', "sh", *command]
        where = steps.ROOT / "roles/rabbitmq/files"
        return int(subprocess.run(limited, check=True, stdout=subprocess.PIPE, text=True, cwd=where).stdout)

    return run


def test_a_process_gets_more_files_than_the_soft_limit_of_a_shell(started: Started) -> None:
    assert started(1024, 4000) == FILES


def test_a_process_gets_as_many_files_as_the_system_lets_it_have(started: Started) -> None:
    # Where root may raise the hard limit too, that is what is wanted
    assert started(1024, 2000) in (2000, FILES)
