"""What engines change in the machine's kernel is as before when the last of them has ended."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.kernel_settings import changed


@pytest.fixture
def setting(tmp_path: Path) -> Path:
    file = tmp_path / "setting"
    file.write_text("1\n")
    return file


def test_the_last_of_several_engines_puts_back_what_was_before_the_first(setting: Path, tmp_path: Path) -> None:
    first, second = (changed(setting, lambda _: "2", tmp_path) for _ in range(2))
    with first:
        assert setting.read_text() == "2"
        second.__enter__()
    assert setting.read_text() == "2"
    second.__exit__(None, None, None)
    assert setting.read_text() == "1\n"


def test_what_was_before_an_engine_that_was_killed_is_put_back_by_the_next(setting: Path, tmp_path: Path) -> None:
    # Given the note and the setting of one that could not clear away
    (tmp_path / "osrdyne-setting").write_text("1\n")
    setting.write_text("2")
    with changed(setting, lambda before: str(int(before) + 5), tmp_path):
        assert setting.read_text() == "6"
    assert setting.read_text() == "1\n"
