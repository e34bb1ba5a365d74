"""What a command leaves behind is found, named and removed; one that leaves nothing ends as it would alone."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import steps
from contained import parents
from testbed.waiting import PATIENCE_SECONDS, until

#: The tool, with the grace that the first argument names.
TOOL = "import sys, contained; contained.GRACE_SECONDS = float(sys.argv.pop(1)); contained.main()"
#: A program that detaches itself as daemons do: two forks and a session of its own. It ends once what it leaves has
#: become what it will be: only then is the pipe closed everywhere.
DETACHED = """
import os, sys
there, here = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execlp("sleep", "sleep", "321.5")
    os._exit(0)
os.close(here)
os.read(there, 1)
os.wait()
"""
AS_ROOT = [] if os.geteuid() == 0 else ["sudo", "-n", "-E"]


def contained(
    folder: Path, *command: str, before: tuple[str, ...] = (), path: str = "", grace: float = 0.5
) -> tuple[int, list[str]]:
    """Exit code, and the lines that say what was left after `grace` seconds."""
    environment = steps.environment()
    environment["PATH"] = path + environment["PATH"]
    done = subprocess.run(
        [*before, sys.executable, "-c", TOOL, str(grace), str(folder), *command],
        env=environment,
        check=False,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
    )
    return done.returncode, [line for line in done.stdout.splitlines() if line.startswith("left behind: ")]


@pytest.mark.parametrize("code", [0, 3, 90])
def test_a_command_that_leaves_nothing_ends_as_it_would_alone(tmp_path: Path, code: int) -> None:
    assert contained(tmp_path, "sh", "-c", f"exit {code}") == (code, [])


def test_a_process_that_is_just_ending_is_not_a_leftover(tmp_path: Path) -> None:
    assert contained(tmp_path, "sh", "-c", "sleep 0.1 &", grace=PATIENCE_SECONDS) == (0, [])


def test_a_detached_process_is_named_and_ended(tmp_path: Path) -> None:
    code, [line] = contained(tmp_path, sys.executable, "-c", DETACHED)

    assert code == 90
    assert line.endswith(": sleep 321.5")
    pid = int(line.split()[3].rstrip(":"))
    until(lambda: pid not in parents())


def test_a_failed_command_keeps_its_exit_code(tmp_path: Path) -> None:
    code, left = contained(tmp_path, "sh", "-c", "sleep 321.5 & exit 3")

    assert (code, len(left)) == (3, 1)


def test_a_file_outside_of_pytests_own_folders_is_named(tmp_path: Path) -> None:
    code, left = contained(tmp_path, "sh", "-c", 'mkdir "$TMPDIR/pytest-of-x" && touch "$TMPDIR/data"')

    assert (code, left) == (90, [f"left behind: file: {tmp_path}/data"])


def test_a_folder_outside_of_pytests_own_is_named_with_what_is_in_it(tmp_path: Path) -> None:
    code, left = contained(tmp_path, "sh", "-c", 'mkdir -p "$TMPDIR/a/b" "$TMPDIR/c"')

    assert (code, left) == (
        90,
        [f"left behind: folder: {tmp_path}/a, with b", f"left behind: folder: {tmp_path}/c, with nothing in it"],
    )


def test_a_mount_is_named_and_undone(tmp_path: Path) -> None:
    # In a mount namespace of its own, in case that it is not undone.
    make = 'mkdir "$TMPDIR/pytest-of-x" && mount -t tmpfs none "$TMPDIR/pytest-of-x"'
    code, left = contained(tmp_path, "sh", "-c", make, before=(*AS_ROOT, "unshare", "--mount"))

    assert (code, left) == (90, [f"left behind: mount: {tmp_path}/pytest-of-x"])


def test_a_container_that_carries_the_name_of_the_run_is_named_and_removed(tmp_path: Path) -> None:
    # Given a docker that knows one container of the run
    docker, removed, folder = tmp_path / "bin/docker", tmp_path / "removed", tmp_path / "run"
    docker.parent.mkdir()
    folder.mkdir()
    docker.write_text(
        f'#!/bin/sh\ncase "$*" in ps*name=run*) echo run-machine;; rm*) echo "$*" > {removed};; *) exit 1;; esac\n'
    )
    docker.chmod(0o755)

    code, left = contained(folder, "true", path=f"{docker.parent}:")

    assert (code, left) == (90, ["left behind: container: run-machine"])
    assert removed.read_text() == "rm --force run-machine\n"
