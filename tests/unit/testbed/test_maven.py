"""Archives from Maven: only what has the checksum is unpacked, and it is fetched once."""

from __future__ import annotations

import hashlib
import os
import tarfile
from pathlib import Path

import pytest

from testbed.maven import Archive, NotFetched, unpacked
from testbed.suite import SUITE

#: Stands for Maven: it notes that it ran, and puts a file where it is asked to.
MAVEN = """\
#!/bin/sh
echo ran >> {folder}/runs
for word in "$@"; do case "$word" in -DoutputDirectory=*) cp {folder}/a-1-bin.tar.gz "${{word#*=}}";; esac; done
exit {code}
"""


def archive(folder: Path, monkeypatch: pytest.MonkeyPatch, *, code: int = 0) -> str:
    """Have a Maven that brings an archive with one file, and return the checksum of that."""
    monkeypatch.delenv(SUITE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    (folder / "README").write_text("read")
    with tarfile.open(folder / "a-1-bin.tar.gz", "w:gz") as packed:
        packed.add(folder / "README", "a-1/README")
    (folder / "mvn").write_text(MAVEN.format(folder=folder, code=code))
    (folder / "mvn").chmod(0o755)
    return hashlib.sha256((folder / "a-1-bin.tar.gz").read_bytes()).hexdigest()


def test_an_archive_is_fetched_once_and_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = Archive("g", "a", "1", archive(tmp_path, monkeypatch))

    assert (unpacked(wanted) / "a-1/README").read_text() == "read"
    assert unpacked(wanted) == unpacked(wanted)
    assert (tmp_path / "runs").read_text() == "ran\n"


def test_an_archive_with_another_checksum_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive(tmp_path, monkeypatch)

    with pytest.raises(NotFetched, match=r"a-1-bin.tar.gz has the checksum .*, and not 0000"):
        unpacked(Archive("g", "a", "1", "0" * 64))
    assert [path.suffix for path in (tmp_path / "cache/osrdyne/maven").iterdir()] == [".lock"]


def test_a_maven_that_fails_leaves_no_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = Archive("g", "a", "1", archive(tmp_path, monkeypatch, code=1))

    with pytest.raises(NotFetched, match=r"Maven could not fetch g:a:1:tar\.gz:bin"):
        unpacked(wanted)
