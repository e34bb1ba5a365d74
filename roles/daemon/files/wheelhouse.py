"""Makes, where the playbook runs, a folder of wheels from which a machine installs the daemon without any index.

In it: the project's own packages with jobs and relay, and what they need of others, of the versions and hashes that
requirements.lock pins, for the Python of that machine. The folder is cached under a digest of all it is made from;
prints {"archive": ..., "digest": ...}; one file reaches a machine faster than twenty. Run it with the Python of the
project's virtual environment.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PROJECT = Path(__file__).resolve().parents[3]
#: The project's packages that daemon, jobs and relay are made of.
OURS = (
    "packages/protocol",
    "packages/runtime",
    "packages/command",
    "packages/pool",
    "packages/calls",
    "packages/amqp",
    "packages/client",
    "packages/worker",
    "daemon",
    "packages/jobs",
    "packages/relay",
)
#: What a machine installs; in brackets, the extra that it needs.
INSTALLED = ("osrdyne[docker,kubernetes,status,systemd]", "osrdyne-jobs[postgresql]", "osrdyne-relay[driver,node,s3]")
ARCHIVE = "wheels.tar"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("python_version", help="of the machine, such as 3.13")
    version = parser.parse_args().python_version
    digest = digest_of(version)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "osrdyne" / "wheels"
    house = cache / digest
    if not house.exists():
        cache.mkdir(parents=True, exist_ok=True)
        # Made under another name and renamed: a folder cut short is never taken for a whole one.
        part = Path(tempfile.mkdtemp(prefix="part-", dir=cache))
        try:
            build(part, version)
            pack(part)
            part.chmod(0o755)
            part.rename(house)
        finally:
            shutil.rmtree(part, ignore_errors=True)
    print(json.dumps({"archive": str(house / ARCHIVE), "digest": digest}))


def digest_of(version: str) -> str:
    files = [PROJECT / "requirements.lock", Path(__file__)]
    files += [path for name in OURS for path in sorted((PROJECT / name).rglob("*")) if path.suffix in (".py", ".toml")]
    summed = hashlib.sha256(version.encode())
    for path in files:
        summed.update(f"\0{path.relative_to(PROJECT)}\0".encode() + path.read_bytes())
    return summed.hexdigest()[:20]


def build(folder: Path, version: str) -> None:
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    own = [str(PROJECT / name) for name in OURS]
    run([*pip, "wheel", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", str(folder), *own])
    pinned = folder / "requirements.txt"
    wanted = {name for package in INSTALLED for name in needed(package)}
    pinned.write_text("".join(block for name, block in locked().items() if name in wanted))
    wheels = ["--no-deps", "--require-hashes", "--only-binary=:all:", f"--python-version={version}"]
    run([*pip, "download", *wheels, "--dest", str(folder), "--requirement", str(pinned)])


def pack(folder: Path) -> None:
    """One archive of the wheels, beside them."""
    with tarfile.open(folder / ARCHIVE, "w") as archive:
        for wheel in sorted(folder.glob("*.whl")):
            archive.add(wheel, wheel.name)


def locked() -> dict[str, str]:
    """What requirements.lock says of each package: its pin and its hashes."""
    blocks: dict[str, str] = {}
    name = ""
    for line in (PROJECT / "requirements.lock").read_text().splitlines(keepends=True):
        start = re.match(r"([A-Za-z0-9][\w.-]*)(?:\[[^]]*\])?==", line)
        if start:
            name = canonicalize_name(start[1])
        if name and not line.lstrip().startswith("#"):
            blocks[name] = blocks.get(name, "") + line
    return blocks


def needed(root: str) -> set[str]:
    """Names of all that a package needs, whatever Python it runs on; pip leaves out what does not apply."""
    found: set[str] = set()
    waiting = [Requirement(root)]
    seen: set[tuple[str, str]] = set()
    while waiting:
        one = waiting.pop()
        name = canonicalize_name(one.name)
        found.add(name)
        # An extra needs its package, too.
        for extra in {"", *one.extras} - {extra for known, extra in seen if known == name}:
            seen.add((name, extra))
            try:
                requirements = map(Requirement, metadata.requires(name) or [])
            except metadata.PackageNotFoundError:
                continue  # of another Python than this one; the lock knows it, and what it needs in turn
            waiting += [each for each in requirements if belongs(each, extra)]
    return found


def belongs(requirement: Requirement, extra: str) -> bool:
    """Whether a package needs this for one of its extras, or, without an extra, in any case."""
    named = re.findall(r"extra == [\"']([^\"']+)[\"']", str(requirement.marker or ""))
    return extra in named if extra else not named


def run(command: list[str]) -> None:
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command[2:5])} ... failed:\n{done.stdout}")


if __name__ == "__main__":
    main()
