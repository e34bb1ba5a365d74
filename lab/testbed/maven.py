"""Archives from Maven Central for tests, each unpacked once a machine: `unpacked(archive)` is its folder.

Maven fetches them, from wherever the machine's own settings say, and apt installs it where it is missing. What came is
compared with a checksum. It is kept in the cache, and made under another name and renamed: what a run cut short leaves
is never taken for a whole one.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from testbed import apt
from testbed.go_builds import cache
from testbed.suite import only_in_test_all

#: What fetches a file without a project.
_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy"


class NotFetched(RuntimeError):
    """An archive could not be fetched; the text says why."""


@dataclass(frozen=True)
class Archive:
    """A `tar.gz` with the classifier `bin`."""

    group: str
    artifact: str
    version: str
    sha256: str

    @property
    def file(self) -> str:
        return f"{self.artifact}-{self.version}-bin.tar.gz"


def unpacked(archive: Archive) -> Path:
    """Return the folder with what is in an archive, fetched unless it is there.

    Another process that fetches the same is waited for. Raises NotFetched and apt.NotInstalled.
    """
    only_in_test_all(f"{archive.artifact}, which is downloaded,")
    kept = cache() / "maven"
    target = kept / f"{archive.artifact}-{archive.version}-{archive.sha256[:12]}"
    kept.mkdir(parents=True, exist_ok=True)
    with Path(f"{target}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            _fetch(archive, kept, target)
    return target


def _fetch(archive: Archive, kept: Path, target: Path) -> None:
    if not shutil.which("mvn"):
        apt.install("maven", why=f"Maven fetches {archive.artifact}")
    print(f"Maven fetches {archive.artifact} {archive.version}", file=sys.stderr, flush=True)
    part = Path(tempfile.mkdtemp(prefix="part-", dir=kept))
    try:
        coordinates = f"{archive.group}:{archive.artifact}:{archive.version}:tar.gz:bin"
        # A repository of its own, so that a file which someone else's Maven fetched is not taken for ours.
        options = [f"-Dmaven.repo.local={part / 'repository'}", f"-DoutputDirectory={part}"]
        done = subprocess.run(
            ["mvn", "-B", "-q", *options, _PLUGIN, f"-Dartifact={coordinates}"],
            check=False,
            cwd=part,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
        )
        if done.returncode:
            raise NotFetched(f"Maven could not fetch {coordinates}: {(done.stdout + done.stderr)[-1500:]}")
        file = part / archive.file
        if (found := hashlib.sha256(file.read_bytes()).hexdigest()) != archive.sha256:
            raise NotFetched(f"{archive.file} has the checksum {found}, and not {archive.sha256}")
        content = part / "content"
        content.mkdir()
        subprocess.run(["tar", "-xzf", str(file), "--no-same-owner", "-C", str(content)], check=True)
        content.rename(target)
    finally:
        shutil.rmtree(part, ignore_errors=True)
