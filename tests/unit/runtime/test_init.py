"""A command that is PID 1 of a container does what an init does. Its processes are real, in their own namespace."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

ALONE = ["unshare", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"]), "--pid", "--fork", "--mount-proc"]
#: What the command does in the place of its own work. `{body}` is what the test is about.
PROGRAM = """
import asyncio, os, signal, subprocess, sys, time
from osrdyne_command import program

def zombies():
    states = {{}}
    for one in os.listdir("/proc"):
        try:
            states[one] = open(f"/proc/{{one}}/stat").read().rpartition(")")[2].split()[0]
        except OSError:
            pass  # neither a process nor there any more
    return [one for one, state in states.items() if state == "Z"]

def work(*_, **__):
    {body}

program.app = work
program.main()
"""


def run(body: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*ALONE, sys.executable, "-c", PROGRAM.format(body=body.strip().replace("\n", "\n    "))],
        capture_output=True,
        text=True,
        check=False,
        timeout=170,
    )


def test_orphans_of_others_leave_no_zombie_and_own_children_keep_their_status() -> None:
    done = run("""
own = subprocess.Popen(["sh", "-c", "exit 7"])
orphan = subprocess.run(["sh", "-c", "sleep 0.2 > /dev/null & echo $!"], capture_output=True, text=True).stdout.strip()
async def child():
    return await (await asyncio.create_subprocess_exec("sh", "-c", "exit 9")).wait()
patience = time.monotonic() + 30
while os.path.exists(f"/proc/{orphan}") and time.monotonic() < patience:
    time.sleep(0.01)
print(orphan in zombies(), own.wait(), asyncio.run(child()))
""")

    assert (done.stdout, done.returncode) == ("False 7 9\n", 0), done


def test_a_signal_to_the_first_process_ends_the_command_with_its_status() -> None:
    done = run("""
signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))
os.kill(1, signal.SIGTERM)
signal.pause()
""")

    assert done.returncode == 5, done


@pytest.mark.parametrize(("how", "status"), [("sys.exit(3)", 3), ("os.kill(os.getpid(), signal.SIGKILL)", 137)])
def test_the_first_process_ends_as_the_command_ends(how: str, status: int) -> None:
    assert run(how).returncode == status
