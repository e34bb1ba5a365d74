"""Files that change: written again, replaced by a link as Kubernetes does, made and removed."""

from __future__ import annotations

import os
from pathlib import Path

from osrdyne_runtime.settings.changes import FileChanges


def test_each_way_in_which_a_file_changes_is_found_once(tmp_path: Path) -> None:
    file, other = tmp_path / "file", tmp_path / "other"
    file.write_text("a")
    changes = FileChanges([file, str(other)])
    assert not changes.found()

    steps = (
        lambda: file.write_text("longer"),
        lambda: os.utime(file, ns=(0, 0)),
        lambda: other.write_text("made"),
        other.unlink,
        lambda: (tmp_path / "new").write_text("longer") and (tmp_path / "new").replace(file),
    )
    for step in steps:
        step()
        assert changes.found()
        assert not changes.found()
