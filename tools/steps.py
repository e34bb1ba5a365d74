"""Run commands as named steps: one line says what is done and how long it took.

Used by the scripts in this folder. Output of a quiet step is shown only when it fails. Standard library only,
because `setup.py` runs before anything is installed, and no syntax newer than Python 3.8, so that an old
Python reaches the message that says which version is needed.
"""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Dict, Iterator, List, NoReturn, Optional

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
BIN = VENV / "bin"


class StepFailed(Exception):
    """A command of a step ended with an error; what it printed is in the message."""


def environment(**extra: str) -> Dict[str, str]:
    """The environment of a command: ours, with the tools of `.venv` found first.

    `PYTHONPATH` and `PYTHONHOME` are left out: they would let other versions of a package in. So is
    `PYTHONDONTWRITEBYTECODE`, which images for containers set: each of thousands of processes would compile all that it
    imports, which takes a daemon longer than its start.
    """
    left_out = ("PYTHONPATH", "PYTHONHOME", "PYTHONDONTWRITEBYTECODE")
    env = {name: value for name, value in os.environ.items() if name not in left_out}
    env["PATH"] = str(BIN) + os.pathsep + env.get("PATH", os.defpath)
    env["VIRTUAL_ENV"] = str(VENV)
    env.update(extra)
    return env


def quiet(title: str, command: List[str], env: Optional[Dict[str, str]] = None) -> None:
    """Run a command without showing its output. Raises StepFailed with that output."""
    started = time.monotonic()
    print(f"  {title} ... ", end="", flush=True)
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=env or environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )
    except FileNotFoundError as exc:
        print("failed", flush=True)
        raise StepFailed(f"{command[0]} is not installed") from exc
    print(f"{'failed after ' if done.returncode else ''}{time.monotonic() - started:.1f} s", flush=True)
    if done.returncode:
        how = f"{' '.join(command)} ended with exit code {done.returncode}"
        raise StepFailed(f"{how}:\n{done.stdout.rstrip()}")


def tracked(*suffixes: str) -> List[str]:
    """Files of the project whose name ends so, relative to its root: what git tracks or would track.

    Outside a clone: everything but hidden folders and what tools leave behind.
    """
    try:
        listing = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
        names = {name for name in listing.stdout.split("\0") if name and (ROOT / name).is_file()}
    except (FileNotFoundError, subprocess.CalledProcessError):
        names = set(untracked())
    return sorted(name for name in names if name.endswith(suffixes or ""))


def untracked() -> Iterator[str]:
    """What a tree without git holds: its visible files, and the hidden ones of its top folder."""
    for folder, folders, files in os.walk(ROOT):
        here = Path(folder).relative_to(ROOT)
        folders[:] = [n for n in folders if n == ".ci" or not (n.startswith(".") or n == "__pycache__")]
        yield from (str(here / name) for name in files)


def python_files() -> List[str]:
    """All Python of the project, scripts without a suffix too: their first line names the interpreter."""
    return [name for name in tracked() if name.endswith((".py", ".pyi")) or is_python_script(ROOT / name)]


def is_python_script(path: Path) -> bool:
    """True for a file without a suffix that starts with `#!` and python."""
    if path.suffix:
        return False
    with path.open("rb") as file:
        first = file.readline(100)
    return first.startswith(b"#!") and b"python" in first


def stop(message: str) -> NoReturn:
    """End the script with a message for a person."""
    sys.exit(f"{Path(sys.argv[0]).stem}: {message}")
