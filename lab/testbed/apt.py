"""Packages of the system that engines need: installed by apt where they are missing, and without their services."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from testbed import ROOT

#: As a program: root's rights are for it alone.
PROGRAM = ROOT / "tools/system_packages.py"


#: What it records; see plugins/modules/osrdyne_packages.py.
STATE = Path("/var/lib/osrdyne/packages.json")


class NotInstalled(RuntimeError):
    """apt could not install a package; the text says which and why."""


def install(*packages: str, why: str, settings: dict[Path, str] | None = None) -> None:
    """Install packages, and say so on standard error. Raises NotInstalled.

    `settings` are files of one line that are there meanwhile.
    """
    superuser = [] if os.geteuid() == 0 else ["sudo", "-n"]
    meanwhile = [f"--setting={path}={line}" for path, line in (settings or {}).items()]
    command = [*superuser, sys.executable, str(PROGRAM), f"--why={why}", *meanwhile, *packages]
    # Not ended by a Ctrl-C: it ends by itself, and leaves nothing half done.
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise NotInstalled(done.stdout.strip() or f"{why}: {' '.join(command)} ended with {done.returncode}")


def finish() -> None:
    """End an installation that was killed halfway: it may have left a service enabled."""
    if STATE.exists() and json.loads(STATE.read_text())["unfinished"]:
        install(why="packages")
