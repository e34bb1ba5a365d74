"""Programs that `make` runs and packages bring guard their output, so that a full disk is not a traceback."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import steps

#: Run before anything is installed, by a Python that has nothing of ours.
ALONE = {"tools/setup.py", "tools/purge.py"}
TEXT = Path(steps.ROOT, "Makefile").read_text()
SCRIPTS = set(re.findall(r"\btools/\w+\.py", TEXT)) - ALONE
MODULES = set(re.findall(r"-m ([\w.]+)", TEXT)) - {"testbed.prepare"} | {
    "osrdyne_infra.adopt",
    "osrdyne_infra.hand_over",
}


def file_of(module: str) -> str:
    path = module.replace(".", "/")
    found = [
        f"{folder}{path}{end}"
        for folder in ("", "infra/", "lab/")
        for end in (".py", "/__main__.py")
        if Path(steps.ROOT, f"{folder}{path}{end}").exists()
    ]
    assert len(found) == 1, module
    return found[0]


@pytest.mark.parametrize("file", sorted(SCRIPTS | {file_of(module) for module in MODULES}))
def test_a_program_guards_its_output(file: str) -> None:
    begins = Path(steps.ROOT, file).read_text().rpartition('if __name__ == "__main__":\n')[2]

    assert begins.startswith("    with guarded("), begins


def test_every_script_that_a_package_installs_does() -> None:
    for project in steps.tracked("pyproject.toml"):
        scripts = re.findall(
            r"^\S+ = \"(\S+:\w+)\"",
            Path(steps.ROOT, project).read_text().partition("[project.scripts]")[2].partition("\n\n")[0],
            re.MULTILINE,
        )
        for script in scripts:
            module, _, name = script.partition(":")
            [file] = [f for f in steps.tracked(".py") if f.endswith(f"{module.replace('.', '/')}.py")]
            assert re.search(rf"def {name}\(\).*?with guarded\(", Path(steps.ROOT, file).read_text(), re.DOTALL), script
