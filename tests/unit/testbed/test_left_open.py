"""What a test leaves open fails its own module, and not a test that runs when Python collects garbage."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import steps

#: A socket that only the garbage collector finds.
LEAVES = """
import socket
def test_leaves_a_socket():
    lost = [socket.socket()]
    lost.append(lost)
"""
COLLECTS = """
import gc
def test_collects():
    gc.collect()
"""


def test_a_socket_that_was_left_open_is_an_error_of_its_own_module(tmp_path: Path) -> None:
    for name, text in (("test_1_leaves.py", LEAVES), ("test_2_collects.py", COLLECTS)):
        (tmp_path / name).write_text(text)
    command = [sys.executable, "-m", "pytest", "-c", "pyproject.toml", "-p", "tests.conftest", "-p", "no:randomly"]
    command += ["-p", "no:cacheprovider", str(tmp_path)]
    # Without the variables by which `make test` has its tests noted.
    env = {"PATH": os.environ["PATH"]}
    done = subprocess.run(command, cwd=steps.ROOT, env=env, check=False, capture_output=True, text=True)
    errors = [line for line in done.stdout.splitlines() if line.startswith(("ERROR", "FAILED"))]
    assert len(errors) == 1, done.stdout
    assert "test_1_leaves.py::test_leaves_a_socket" in errors[0]
    assert "unclosed <socket" in done.stdout
