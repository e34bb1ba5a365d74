"""The parts of `osrdyne dev`: what counts as a change, what the daemon is given, and what is shown of logs."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from osrdyne.commands.dev import settings, sources
from osrdyne.commands.dev.output import Output
from osrdyne_pool import settings_file
from osrdyne_runtime.console.output import CannotAsk

HEADING = '{"osrdyne": "worker", "key": "LAX"}\n'


def test_a_file_of_the_worker_that_changes_comes_or_goes_is_a_change_and_others_are_not(tmp_path: Path) -> None:
    worker, package = tmp_path / "worker.py", tmp_path / "model"
    worker.write_text("1")
    known = sources.state(tmp_path)

    for folder in (".hidden", "__pycache__", "environment"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "other.py").write_text("")
    (tmp_path / "environment/pyvenv.cfg").write_text("")
    (tmp_path / "data.csv").write_text("")
    # The environment counts for as long as it is not one yet.
    assert sources.state(tmp_path) == known

    seen = {known}
    package.mkdir()
    (package / "deep.py").write_text("")
    seen.add(sources.state(tmp_path))
    os.utime(worker, ns=(1, 1))
    seen.add(sources.state(tmp_path))
    worker.unlink()
    seen.add(sources.state(tmp_path))
    assert len(seen) == 4


def test_a_folder_that_may_not_be_entered_ends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed, account = tmp_path / "closed", os.geteuid()
    closed.mkdir(mode=0o600)
    monkeypatch.chdir(tmp_path)
    if account == 0:  # which may enter all
        for folder in (tmp_path, closed):
            os.chown(folder, 65534, -1)
        os.seteuid(65534)
    try:
        known = sources.state(Path())
        Path("worker.py").touch()
        assert sources.state(Path()) != known
    finally:
        os.seteuid(account)


def written(tmp_path: Path, text: str, state: str = "a") -> dict[str, object]:
    source, target = tmp_path / "settings.toml", tmp_path / "made.toml"
    source.write_text(f'pool.name = "core"\nbroker = {{}}\n{text}')
    settings.write(source, target, "worker.py", state)
    driver = settings_file.read(target)["driver"]
    assert driver["kind"] == "subprocess"
    return dict(driver["template"])


@pytest.mark.parametrize(
    ("command", "taken"),
    [
        ('["python3", "worker.py"]', [sys.executable, "worker.py"]),
        ('["python", "worker.py", "-v"]', [sys.executable, "worker.py", "-v"]),
        ('["uv", "run", "worker.py"]', ["uv", "run", "worker.py"]),
        ('["python", "other.py"]', [sys.executable, "worker.py"]),
    ],
)
def test_the_command_of_the_settings_is_taken_where_it_runs_the_worker(
    command: str, taken: list[str], tmp_path: Path
) -> None:
    assert (
        written(tmp_path, f'driver.kind = "subprocess"\n[driver.template]\ncommand = {command}\n')["command"] == taken
    )


def test_changed_files_change_the_template_and_nothing_else(tmp_path: Path) -> None:
    text = 'driver.kind = "subprocess"\n[driver.template]\ncommand = ["a"]\nenvironment = { MODEL = "m" }\n'
    before, after = written(tmp_path, text), written(tmp_path, text, state="b")

    assert before.pop("environment") == {"PYTHONUNBUFFERED": "1", "MODEL": "m", "OSRDYNE_DEV_SOURCES": "a"}
    assert after.pop("environment") == {"PYTHONUNBUFFERED": "1", "MODEL": "m", "OSRDYNE_DEV_SOURCES": "b"}
    assert before == after


def test_another_driver_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CannotAsk, match=r"driver\.kind is not 'subprocess', and this command runs"):
        written(tmp_path, '[driver]\nkind = "noop"\n')


def test_whole_lines_that_are_new_are_shown_with_their_key(tmp_path: Path) -> None:
    old, new = tmp_path / "a.log", tmp_path / "b.log"
    old.write_text(f"{HEADING}before\n")
    output = Output(tmp_path)

    with old.open("a") as file:
        file.write("after\nhal")
    new.write_text(HEADING.replace("LAX", "a b") + "first\tone\x1b\n")
    assert list(output.lines()) == [("LAX", "after"), ("a b", "first\tone\x1b")]
    with old.open("a") as file:
        file.write("f\n")
    assert list(output.lines()) == [("LAX", "half")]
    # A full log is emptied, but for its heading.
    old.write_text(f"{HEADING}x\n")
    assert list(output.lines()) == [("LAX", "x")]
