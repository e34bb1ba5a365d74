"""The Ansible module osrdyne_files, called as Ansible calls it."""

from __future__ import annotations

import getpass
import stat
from pathlib import Path
from typing import Any

import pytest

from testbed.plugins import run_module

SECRET = "p4ssw0rd é\n"


def ensure(directory: Path, *names: str, owner: str | None = None, check: bool = False) -> dict[str, Any]:
    """What the module returns."""
    files = [{"name": name, "content": SECRET, "owner": owner or getpass.getuser()} for name in names]
    arguments = {"directory": str(directory), "files": files, "_ansible_check_mode": check, "_ansible_no_log": True}
    return run_module("osrdyne_files", arguments)


def test_files_are_written_for_their_owner_alone_and_a_second_run_changes_nothing(tmp_path: Path) -> None:
    first = ensure(tmp_path, "a", "b")

    assert (first["changed"], first["written"]) == (True, ["a", "b"])
    assert {path.name for path in tmp_path.iterdir()} == {"a", "b"}
    for path in tmp_path.iterdir():
        assert path.read_text() == SECRET
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert ensure(tmp_path, "a", "b")["changed"] is False


def test_a_rehearsal_names_what_differs_and_writes_nothing(tmp_path: Path) -> None:
    ensure(tmp_path, "same", "text", "rights")
    (tmp_path / "text").write_text("another")
    (tmp_path / "rights").chmod(0o644)

    rehearsed = ensure(tmp_path, "same", "text", "rights", "new", check=True)

    assert rehearsed["written"] == ["text", "rights", "new"]
    assert (tmp_path / "text").read_text() == "another"
    assert stat.S_IMODE((tmp_path / "rights").stat().st_mode) == 0o644
    assert not (tmp_path / "new").exists()
    # And the run that follows puts these right, and no other
    before = (tmp_path / "same").stat().st_ino
    assert ensure(tmp_path, "same", "text", "rights", "new")["written"] == ["text", "rights", "new"]
    assert (tmp_path / "same").stat().st_ino == before
    assert ensure(tmp_path, "same", "text", "rights", "new")["changed"] is False


def test_what_a_killed_run_left_is_removed_and_a_link_in_its_place_is_not_followed(tmp_path: Path) -> None:
    ensure(tmp_path, "same")
    other = tmp_path / "other"
    other.write_text("of another program")
    (tmp_path / "same.new").write_text("an address that was taken back")
    (tmp_path / "a.new").write_text("an address of")
    (tmp_path / "b.new").symlink_to(other)

    ensure(tmp_path, "same", "a", "b", check=True)
    assert (tmp_path / "same.new").exists()
    assert ensure(tmp_path, "same", "a", "b")["written"] == ["a", "b"]

    assert {path.name for path in tmp_path.iterdir()} == {"same", "a", "b", "other"}
    assert (tmp_path / "a").read_text() == (tmp_path / "b").read_text() == SECRET
    assert other.read_text() == "of another program"


@pytest.mark.parametrize(
    "directory, owner, said",
    [("missing", None, "missing/a cannot be written: "), ("", "no-such-account", "no-such-account")],
    ids=["no directory", "no account"],
)
def test_what_cannot_be_written_is_said_and_leaves_nothing(
    tmp_path: Path, directory: str, owner: str | None, said: str
) -> None:
    refused = ensure(tmp_path / directory, "a", owner=owner)

    assert refused["failed"]
    assert said in refused["msg"]
    assert SECRET.strip() not in refused["msg"]
    assert list(tmp_path.iterdir()) == []
