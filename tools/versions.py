"""The version of all packages: read from one place, the root's pyproject.toml, and written wherever else it stands.

An index reads it from the metadata of each package, where it must stand as a constant. So must the pins of siblings: a
package works with those of its own version only. `write` sets all of them; a test finds one that differs.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import steps

#: A version as `write` takes it: MAJOR.MINOR.PATCH.
VERSION = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)")
#: Where a version stands that is not one of the past, by what stands before it.
_BEFORE = (
    r'^version = "',  # of a package, and of all in the root's file
    r'"osrdyne[a-z-]*(?:\[[a-z0-9,]+\])?==',  # a pin of a sibling
    r'"version": "',  # of the description of an API
    r"^version: ",  # of the Ansible collection
    r'image\.version="',  # of an image
    r"\b(?:osrdyne(?:-airports)?|airports):",  # a tag of an image
    r"\b(?:resource osrdyne |osrdyne@)",  # Pulumi's package
)
#: Texts about versions of the past, which stay.
_PAST = ("CHANGELOG.md", "docs/releases.md", "docs/decisions/", "requirements.lock", "lab/", "tests/")


def current(root: Path = steps.ROOT) -> str:
    """Return the version."""
    version: str = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["osrdyne"]["version"]
    return version


def number(version: str) -> tuple[int, ...]:
    """Return a version as numbers, which compare as versions do. Raises ValueError."""
    if not VERSION.fullmatch(version):
        raise ValueError(f"{version!r} is not a version: it is three numbers, such as 1.2.3")
    return tuple(map(int, version.split(".")))


def write(version: str, root: Path = steps.ROOT) -> list[str]:
    """Write another version to wherever the current one stands; return the files that it stands in."""
    number(version)
    pattern = re.compile(f"({'|'.join(_BEFORE)}){re.escape(current(root))}(?![\\d.]*\\d)", re.MULTILINE)
    changed = []
    for name in steps.tracked(".toml", ".json", ".md", ".yaml", "galaxy.yml", ".py", "Dockerfile"):
        file = root / name
        if name.startswith(_PAST) or not file.is_file():
            continue
        text = file.read_text(encoding="utf-8")
        if (after := pattern.sub(rf"\g<1>{version}", text)) != text:
            file.write_text(after, encoding="utf-8")
            changed.append(name)
    return changed
