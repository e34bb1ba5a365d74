"""Makes, where the playbook runs, a folder of wheels from which a machine installs the daemon without any index.

In it: the project's own packages with jobs and relay, and what they need of others, of the versions and hashes that
requirements.lock pins, for the Python of that machine. The folder is cached under a digest of all it is made from;
prints {"archive": ..., "digest": ...}; one file reaches a machine faster than twenty. It needs Python 3.11 with pip,
and takes the packages from the folder that this role is in: a checkout, or the installed collection.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

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
#: Of the pipeline, where it is asked for; with none of its extras.
PIPELINE = "packages/pipeline"
ARCHIVE = "wheels.tar"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("python_version", help="of the machine, such as 3.13")
    parser.add_argument("--pipeline", action="store_true", help="with what `osrdyne pipeline` needs on one machine")
    given = parser.parse_args()
    version, ours = given.python_version, (*OURS, PIPELINE) if given.pipeline else OURS
    digest = digest_of(version, ours)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "osrdyne" / "wheels"
    house = cache / digest
    if not house.exists():
        cache.mkdir(parents=True, exist_ok=True)
        # Made under another name and renamed: a folder cut short is never taken for a whole one.
        part = Path(tempfile.mkdtemp(prefix="part-", dir=cache))
        try:
            build(part, version, ours)
            pack(part)
            part.chmod(0o755)
            part.rename(house)
        finally:
            shutil.rmtree(part, ignore_errors=True)
    print(json.dumps({"archive": str(house / ARCHIVE), "digest": digest}))


def digest_of(version: str, ours: Sequence[str]) -> str:
    files = [PROJECT / "requirements.lock", Path(__file__)]
    files += [path for name in ours for path in sorted((PROJECT / name).rglob("*")) if path.suffix in (".py", ".toml")]
    summed = hashlib.sha256(version.encode())
    for path in files:
        summed.update(f"\0{path.relative_to(PROJECT)}\0".encode() + path.read_bytes())
    return summed.hexdigest()[:20]


def build(folder: Path, version: str, ours: Sequence[str]) -> None:
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    own = [str(PROJECT / name) for name in ours]
    # Without the backend of the build, pip fetches it.
    offline = ["--no-build-isolation", "--no-index"] if find_spec("flit_core") else []
    run([*pip, "wheel", "--no-deps", *offline, "--wheel-dir", str(folder), *own])
    pinned = folder / "requirements.txt"
    pinned.write_text("".join(needed(locked(), ours)))
    wheels = ["--no-deps", "--require-hashes", "--only-binary=:all:", f"--python-version={version}"]
    run([*pip, "download", *wheels, "--dest", str(folder), "--requirement", str(pinned)])


def pack(folder: Path) -> None:
    """One archive of the wheels, beside them."""
    with tarfile.open(folder / ARCHIVE, "w") as archive:
        for wheel in sorted(folder.glob("*.whl")):
            archive.add(wheel, wheel.name)


def locked() -> dict[str, str]:
    """What requirements.lock says of each package: its pin, its hashes, and what needs it."""
    blocks: dict[str, str] = {}
    name = ""
    for line in (PROJECT / "requirements.lock").read_text().splitlines(keepends=True):
        start = re.match(r"([A-Za-z0-9][\w.-]*)(?:\[[^]]*\])?==", line)
        if start:
            name = name_of(start[1])
        if name:
            blocks[name] = blocks.get(name, "") + line
    return blocks


def needed(blocks: dict[str, str], ours: Sequence[str]) -> list[str]:
    """The lines of the lock for all that our packages need: it says of each package which others need that one.

    Without a look at what is installed here. It may be more than a machine needs, as it does not say for which extra.
    """
    wanted = asked(ours)
    while more := {name for name, block in blocks.items() if name not in wanted and wanted & set(because_of(block))}:
        wanted |= more
    return [block for name, block in blocks.items() if name in wanted]


def asked(ours: Sequence[str]) -> set[str]:
    """Names of what our packages ask for by themselves, with all of their extras but those of the pipeline."""
    found: set[str] = set()
    for folder in ours:
        project = tomllib.loads((PROJECT / folder / "pyproject.toml").read_text())["project"]
        extras = () if folder == PIPELINE else project.get("optional-dependencies", {}).values()
        found |= set(map(name_of, itertools.chain(project["dependencies"], *extras)))
    return found


def because_of(block: str) -> list[str]:
    """Names of the packages that need this one."""
    return re.findall(r"^ +# +(?:via )?([\w.-]+)$", block, re.MULTILINE)


def name_of(requirement: str) -> str:
    """The name of a requirement, as the lock has it."""
    name = re.match(r"[\w.-]+", requirement)
    assert name
    return re.sub(r"[-_.]+", "-", name[0]).lower()


def run(command: list[str]) -> None:
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command[2:5])} ... failed:\n{done.stdout}")


if __name__ == "__main__":
    main()
