#!/usr/bin/python
# MIT, see LICENSE; compatible with the GNU General Public License, version 3.
"""Ansible module: it installs packages by apt, without their services, and records what it installed.

A package of Debian starts its service when it is installed, and enables it for later starts of the machine. Here the
services of packages that are new on the machine do neither. Those of other packages stay as they are.

A kill at any moment leaves nothing that harms: `policy-rc.d` says no to our apt alone, and the next call finishes what
a killed one has begun. As with Debian's own tools, DPKG_ROOT names another root than /.
"""

from __future__ import annotations

DOCUMENTATION = """
module: osrdyne_packages
short_description: Installs packages without their services
description: Installs what is missing by apt; the services of new packages neither start nor are enabled.
options:
  name: {description: Packages., type: list, elements: str, required: true}
  install:
    description: Without it the packages that are missing are only recorded, for another task that installs them.
    type: bool
    default: true
  update:
    description: Whether package lists are read before, which is done in check mode, too.
    type: bool
    default: false
attributes:
  check_mode: {support: full, description: "It says what it would change, and changes nothing."}
  diff_mode: {support: full, description: "It shows which of the packages are installed."}
author: The osrdyne authors (@osrdyne)
"""
EXAMPLES = """
- name: Install Redis
  osrdyne.pool.osrdyne_packages: {name: redis-server}
"""
RETURN = """
installed: {description: "What this call installed, with what that needs.", type: list, returned: always}
recorded: {description: All that was installed for osrdyne and is there., type: list, returned: always}
"""

import contextlib
import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(os.environ.get("DPKG_ROOT") or "/")
#: What was installed for osrdyne, and what an installation that has not ended has begun.
STATE = ROOT / "var/lib/osrdyne/packages.json"
#: Only one process reads package lists or installs at a time: a second `apt-get update` fails instead of waiting.
LOCK = ROOT / "run/osrdyne-packages.lock"
#: Asked by invoke-rc.d and deb-systemd-invoke before a service starts; 101 is no.
POLICY = ROOT / "usr/sbin/policy-rc.d"
#: Our apt hands on the variable. Any other apt gets a yes, should a kill leave the file.
POLICY_TEXT = """#!/bin/sh
# Of osrdyne: packages that it installs do not start their services. If it is still here later, remove it.
[ -z "$OSRDYNE_INSTALLS" ] && exit 0
dpkg-query --listfiles $OSRDYNE_INSTALLS 2>/dev/null |
    grep --quiet --extended-regexp "/(init\\.d|systemd/system)/$1(\\.service)?$" && exit 101
exit 0
"""
#: Seconds to wait for another apt, as on a machine that has just started.
PATIENCE_SECONDS = 300


class NotInstalled(RuntimeError):
    """apt could not install a package; the text says which and why."""


def main() -> None:
    """Run as a module of Ansible."""
    from ansible.module_utils.basic import AnsibleModule

    module = AnsibleModule(
        argument_spec={
            "name": {"type": "list", "elements": "str", "required": True},
            "install": {"type": "bool", "default": True},
            "update": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    names: list[str] = module.params["name"]
    if module.params["update"]:
        with locked() as lock:
            update(lock)
    lacks = missing(names)
    installed: list[str] = []
    if not module.check_mode:
        try:
            if module.params["install"]:
                installed = install(names, say=module.log)
            else:
                note(names)
        except (NotInstalled, OSError) as error:
            module.fail_json(msg=str(error))
    changed = bool(lacks and module.params["install"])
    there = lines(name for name in names if name not in lacks)
    diff = {"before_header": "packages", "after_header": "packages", "before": there, "after": lines(names)}
    shown = {"diff": diff} if module._diff and changed else {}
    module.exit_json(changed=changed, installed=installed, recorded=recorded(), **shown)


def lines(names: Iterable[str]) -> str:
    """Names as a text that can be compared with another."""
    return "".join(f"{name}\n" for name in sorted(names))


def install(
    names: Iterable[str], settings: dict[Path, str] | None = None, *, say: Callable[[str], object]
) -> list[str]:
    """Install those that are missing, and return all packages that are new; `say` is given their names before.

    `settings` are files that are there meanwhile, with their text. Needs root. Raises NotInstalled.
    """
    with undisturbed(), locked() as lock:
        finish()
        lacks = missing(names)
        if lacks and not shutil.which("apt-get"):
            raise NotInstalled(f"there is no apt-get here; install {' '.join(lacks)} by hand")
        # A mirror that is away for a moment is not a reason to give up.
        for last in (False, True):
            if not lacks:
                return []
            update(lock)
            code, said = apt_get(["-s", "install", *lacks], lock)
            new = re.findall(r"^Inst (\S+) \(", said, re.MULTILINE)
            if code == 0:
                say(" ".join(new))
                begin(lacks, new, settings or {})
                try:
                    code, said = apt_get(["install", "-y", *lacks], lock, OSRDYNE_INSTALLS=" ".join(new))
                finally:
                    finish()
            if code == 0:
                return new
            if last:
                raise NotInstalled(f"apt-get could not install {' '.join(lacks)}: {said[-800:]}")
    raise AssertionError


def note(names: Iterable[str]) -> None:
    """Record those that are missing: another program is about to install them."""
    with locked():
        finish()
        write([*recorded(), *missing(names)])


def recorded() -> list[str]:
    """The packages that were installed for osrdyne and are there."""
    kept: list[str] = state().get("installed", [])
    lacks = missing(kept)
    return [name for name in kept if name not in lacks]


def missing(names: Iterable[str]) -> list[str]:
    """Those of the packages that are not installed."""
    wanted = list(names)
    if not wanted or not shutil.which("dpkg-query"):
        return wanted
    listed = output("dpkg-query", "--show", "--showformat=${Package} ${db:Status-Status}\\n", *wanted)
    there = {line.split()[0] for line in listed.splitlines() if line.endswith(" installed")}
    return [name for name in wanted if name not in there]


def begin(names: list[str], new: list[str], settings: dict[Path, str]) -> None:
    """Note what is about to happen, and then write the files that are there meanwhile. One of the same name stays."""
    wanted = {POLICY: POLICY_TEXT, **settings}
    files = {path: text for path, text in wanted.items() if not path.exists() or path.read_text() == text}
    write([*recorded(), *names], {"new": new, "files": [str(path) for path in files]})
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755 if path == POLICY else 0o644)


def finish() -> None:
    """End an installation, also one that was cut short: its services are not enabled, and its files go."""
    begun = state().get("unfinished")
    if not begun:
        return
    disable(begun["new"])
    for file in begun["files"]:
        Path(file).unlink(missing_ok=True)
    write(recorded())


def disable(packages: list[str]) -> None:
    """Have none of the services of these packages start with the machine, nor run now."""
    files = output("dpkg-query", "--listfiles", *packages).splitlines() if packages else []
    # /lib is a link to /usr/lib, and either is named.
    units = [file.removeprefix("/usr") for file in files if re.search(r"/systemd/(system|user)/[^/]+\.[a-z]+$", file)]
    for link in ROOT.glob("etc/systemd/*/**/*"):
        if link.is_symlink() and os.readlink(link).removeprefix("/usr") in units:
            link.unlink()
    # For a machine that is started by another program. Not by `update-rc.d disable`: it disables units, too.
    for script in (os.path.basename(file) for file in files if re.fullmatch(r"/etc/init\.d/[^/]+", file)):
        for link in ROOT.glob(f"etc/rc?.d/S[0-9][0-9]{script}"):
            link.rename(link.with_name(f"K01{script}"))
    # A policy-rc.d that was there before may have let one start. A unit of the administrator goes before a package's.
    if str(ROOT) == "/" and Path("/run/systemd/system").exists():
        theirs = [os.path.basename(unit) for unit in units if "@." not in unit]
        output("systemctl", "daemon-reload")
        output("systemctl", "stop", *(unit for unit in theirs if not Path("/etc/systemd/system", unit).exists()))


def state() -> dict[str, Any]:
    """What is recorded."""
    try:
        found: dict[str, Any] = json.loads(STATE.read_text())
    except FileNotFoundError:
        return {}
    return found


def write(installed: list[str], unfinished: dict[str, list[str]] | None = None) -> None:
    """Record by rename, so that the record is whole."""
    STATE.parent.mkdir(parents=True, exist_ok=True)
    fresh = STATE.with_suffix(".new")
    fresh.write_text(json.dumps({"installed": sorted({*installed}), "unfinished": unfinished}, indent=1) + "\n")
    fresh.chmod(0o644)
    fresh.replace(STATE)


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Keep signals from ending this process, and the apt that it starts, halfway."""
    before = {
        number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def locked() -> Iterator[int]:
    """Wait until no other process installs; yield the lock, which an apt that outlives this process keeps."""
    before = os.umask(0o022)  # the record is for all to read, whatever the umask of who runs this
    try:
        LOCK.parent.mkdir(parents=True, exist_ok=True)
        with LOCK.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield file.fileno()
    finally:
        os.umask(before)


def update(lock: int) -> None:
    """Bring the package lists up to date. For these, apt itself does not wait until another apt is done."""
    until = time.monotonic() + PATIENCE_SECONDS
    while "lists/lock" in apt_get(["update"], lock)[1] and time.monotonic() < until:
        time.sleep(5)


def apt_get(words: list[str], lock: int, **variables: str) -> tuple[int, str]:
    """Exit code and output. The output goes to a file: with a pipe, apt would end when this process is killed."""
    given = ["-q", "--no-remove", "-o", f"DPkg::Lock::Timeout={PATIENCE_SECONDS}", "--no-install-recommends"]
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8", **variables}
    with tempfile.TemporaryFile() as file:
        done = subprocess.run(
            ["apt-get", *given, *words],
            check=False,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            pass_fds=[lock],
        )
        file.seek(0)
        return done.returncode, file.read().decode(errors="replace")


def output(*command: str) -> str:
    """What a command prints; its failure does not matter."""
    done = subprocess.run(command, check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    return done.stdout


if __name__ == "__main__":
    main()
