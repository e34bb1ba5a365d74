"""Commands that other packages bring: registered by an entry point, listed and run like ours."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

import steps
from osrdyne_command import program

OUTSIDE = """
import typer

app = typer.Typer(help="Do what no other command does.")

@app.command()
def greet(name: str) -> None:
    typer.echo(f"hello {name}")

@app.callback()
def outside() -> None:
    pass
"""


def run(folder: Path, *words: str, registered: str = "outside:app", name: str = "outside") -> list[object]:
    """Run `osrdyne WORDS` with a package `outside` installed; return status, output, errors."""
    metadata = folder / "outside-1.0.dist-info"
    metadata.mkdir(exist_ok=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: outside\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[osrdyne.commands]\n{name} = {registered}\n")
    (folder / "outside.py").write_text(OUTSIDE)
    done = subprocess.run(
        [sys.executable, "-c", "from osrdyne_command.program import main; main()", *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env=steps.environment(PYTHONPATH=str(folder)),
    )
    return [done.returncode, done.stdout, done.stderr]


def test_a_command_of_another_package_is_listed_with_its_help_and_runs(tmp_path: Path) -> None:
    _, listed, _ = run(tmp_path, "--help")

    assert re.search(r"outside +Do what no other command does\.", str(listed))
    assert run(tmp_path, "outside", "greet", "you") == [0, "hello you\n", ""]


def test_a_mistyped_command_of_another_package_is_suggested(tmp_path: Path) -> None:
    status, _, error = run(tmp_path, "outsid")

    assert status == 64
    assert "Did you mean 'outside'?" in str(error)


def test_one_that_cannot_be_loaded_is_an_error_only_when_it_is_called(tmp_path: Path) -> None:
    status, listed, _ = run(tmp_path, "--help", registered="outside:missing")
    assert status == 0
    assert re.search(r"outside +Cannot be loaded from outside:missing\.", str(listed))

    status, output, error = run(tmp_path, "outside", "greet", "you", registered="outside:missing")
    assert (status, output) == (2, "")
    assert str(error).startswith("osrdyne: command 'outside' cannot be loaded from outside:missing: AttributeError")


def test_one_whose_module_cannot_be_imported_is_an_error_only_when_it_is_called(tmp_path: Path) -> None:
    described = "from osrdyne_command.group import Command\nGREET = Command('outside_greet:command', 'Greet.')\n"
    (tmp_path / "described.py").write_text(described)
    (tmp_path / "outside_greet.py").write_text("import a_library_that_is_not_there")

    _, listed, _ = run(tmp_path, "--help", registered="described:GREET")
    assert re.search(r"outside +Greet\.", str(listed))

    status, output, error = run(tmp_path, "outside", "--loudly", "you", registered="described:GREET")
    assert (status, output) == (2, "")
    assert str(error) == (
        "osrdyne: command 'outside' cannot be loaded from outside_greet:command: ModuleNotFoundError: No module named "
        "'a_library_that_is_not_there'; mend its package\n"
    )


def test_an_object_that_is_not_a_command_is_an_error_too(tmp_path: Path) -> None:
    status, _, error = run(tmp_path, "outside", registered="collections:OrderedDict")

    assert status == 2
    assert "<class 'collections.OrderedDict'> is neither a Command nor a typer.Typer" in str(error)


def test_no_command_can_take_the_name_of_one_of_ours(tmp_path: Path) -> None:
    _, shown, _ = run(tmp_path, "call", "--help", name="call")

    assert "Send one request to the workers" in str(shown)


@pytest.mark.parametrize("order", [1, -1])
def test_a_foreign_package_cannot_take_the_name_of_a_command_of_our_packages(
    monkeypatch: pytest.MonkeyPatch, order: int
) -> None:
    ours = EntryPoint("jobs", "osrdyne_jobs.commands:JOBS", program.GROUP)
    theirs = EntryPoint("jobs", "osrdyne_extra:app", program.GROUP)
    monkeypatch.setattr(program, "entry_points", lambda group: [ours, theirs][::order])

    assert program.registered() == {"jobs": ours}
