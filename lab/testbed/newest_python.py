"""Runs a command of this checkout on the newest Python that osrdyne promises, where this machine has an older one.

That Python comes from a root file system of the release of Debian that has it. The command sees this machine's files,
and at `.venv` an environment of its own: `python -m testbed.newest_python COMMAND...`, with paths below `.venv`.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from testbed import ROOT, package_sources
from testbed.broker import run_tool
from testbed.go_builds import BuildFailed, cache

#: The release of Debian that has it.
SUITE = "trixie"
#: What `make setup` and the unit tests need beside it.
PACKAGES = ("python3", "python3-venv", "git", "make", "ca-certificates")
#: How the variables begin that the command gets.
_PASSED_ON = ("OSRDYNE_", "TERM", "TMPDIR", "PYTHONUNBUFFERED", "CI")


def prepare() -> None:
    """Make the root file system and the environment, or bring them up to date. Raises BuildFailed."""
    environment = _environment() / "venv"
    # Its files are links into uv's cache, which a person may have emptied.
    if not any((folder / "pytest/__main__.py").exists() for folder in environment.glob("lib/*/site-packages")):
        (environment / ".osrdyne-setup").unlink(missing_ok=True)
    setup = ["env", "UV_LINK_MODE=symlink", "python3", "tools/setup.py"]
    done = subprocess.run(_command(setup), check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise BuildFailed(f"no environment on {SUITE}'s Python: {(done.stdout + done.stderr)[-1500:]}")


def _root() -> str:
    recipe = ["--suite", SUITE, "--name", "newest-python", "--packages", ",".join(PACKAGES)]
    return str(json.loads(run_tool("install", *recipe))["root"])


def _environment() -> Path:
    """Where the environment is kept. It holds the checkout's path, so each checkout has its own."""
    kept = cache() / "newest-python" / hashlib.sha256(f"{ROOT}\n{_root()}".encode()).hexdigest()[:12]
    for name in ("venv", "home"):
        (kept / name).mkdir(parents=True, exist_ok=True)
    package_sources.of_pip(kept)
    return kept


def _command(words: list[str]) -> list[str]:
    """Return what runs a command in the root file system, with this machine's files at their places."""
    root, kept = _root(), _environment()
    temporary = Path(tempfile.gettempdir())
    if temporary.name == os.environ.get("OSRDYNE_TEST_RUN"):
        temporary = temporary.parent  # the notes of a tier are beside its folder
    seen = {*map(str, (ROOT, cache().parent, temporary)), "/dev", "/sys", "/etc/ssl"}
    # Below a folder that is seen already, there is nothing to mount.
    outermost = sorted(
        path for path in seen if not any(path != other and Path(path).is_relative_to(other) for other in seen)
    )
    binds = "\n".join(f"mkdir -p {root}{path} && mount --rbind {path} {root}{path}" for path in outermost)
    variables = {name: value for name, value in os.environ.items() if name.startswith(_PASSED_ON)}
    variables |= {
        "HOME": f"{kept}/home",
        "XDG_CACHE_HOME": str(cache().parent),
        "PATH": f"{ROOT}/.venv/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "LANG": "C.UTF-8",
        "PIP_CONFIG_FILE": f"{kept}/etc/pip.conf",
    }
    script = f"""
        set -e
        mount --make-rprivate /
        mount --bind {root} {root}
        {binds}
        mount -t proc proc {root}/proc
        mount --bind {kept}/venv {root}{ROOT}/.venv
        mount -o remount,bind,ro {root}
        cd /
        exec chroot --userspec={os.getuid()}:{os.getgid()} --groups= {root} \
            env --chdir={ROOT} {shlex.join(f"{name}={value}" for name, value in variables.items())} \
            {shlex.join(words)}
    """
    return [*([] if os.geteuid() == 0 else ["sudo", "-n"]), "unshare", "--mount", "sh", "-c", script]


if __name__ == "__main__":
    command = _command(sys.argv[1:])
    os.execvp(command[0], command)  # noqa: S606 - its words are ours
