"""The tests' own Docker engine leaves nothing behind, also where its parts did not take leave of each other."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.docker import _as_root
from testbed.own_dockerd import clear
from testbed.waiting import PATIENCE_SECONDS, until

pytestmark = pytest.mark.full


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """An engine's folder, with something mounted in it."""
    found = tmp_path / "osrdyne-docker-x"
    mounted = found / "run/netns"
    mounted.mkdir(parents=True)
    subprocess.run(_as_root("mount", "-t", "tmpfs", "none", str(mounted)), check=True)
    yield found
    if mounted.exists():
        subprocess.run(_as_root("umount", str(mounted)), check=True)


@pytest.fixture
def shim(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that stood beside a container: it names its engine's folder."""
    with subprocess.Popen(["bash", "-c", f"exec -a {folder}/containerd.sock sleep 600"]) as found:
        until(lambda: str(folder) in Path(f"/proc/{found.pid}/cmdline").read_text())
        yield found
        found.kill()


@pytest.fixture
def other() -> Iterator[subprocess.Popen[bytes]]:
    """A process that has nothing to do with the engine."""
    with subprocess.Popen(["sleep", "600"]) as found:
        yield found
        found.kill()


def test_what_an_engine_has_left_is_ended_unmounted_and_removed(
    folder: Path, shim: subprocess.Popen[bytes], other: subprocess.Popen[bytes]
) -> None:
    clear(folder)

    assert shim.wait(timeout=PATIENCE_SECONDS) == -9
    assert not folder.exists()
    assert str(folder) not in Path("/proc/mounts").read_text()
    assert other.poll() is None
