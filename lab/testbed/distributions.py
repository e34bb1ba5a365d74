"""Our packages as users have them: wheels, and an environment with one of them and all that it needs, and no more.

The wheels are built from here. What others made is linked from the environment of the tests, so nothing of the network
is needed.
"""

from __future__ import annotations

import subprocess
import zipfile
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from flit_core.wheel import make_wheel_in  # type: ignore[import-untyped]
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import setup
import steps


@dataclass(frozen=True)
class Wheels:
    """The wheels of our packages, by the name of the distribution."""

    files: dict[str, Path]

    @classmethod
    def build(cls, folder: Path) -> Wheels:
        """Build them into a folder."""
        built = [make_wheel_in(project / "pyproject.toml", folder).file for project in setup.packages()]
        return cls({canonicalize_name(file.name.split("-")[0]): file for file in built})

    def needed(self, root: str) -> set[str]:
        """Return the names of all that a package needs with its extras, itself included."""
        waiting, seen = [Requirement(root)], set[tuple[str, str]]()
        while waiting:
            one = waiting.pop()
            for extra in {"", *one.extras} - {extra for name, extra in seen if name == one.name}:
                seen.add((one.name, extra))
                each = map(Requirement, self._asked(one.name))
                waiting += [more for more in each if more.marker is None or more.marker.evaluate({"extra": extra})]
        return {canonicalize_name(name) for name, _ in seen}

    def _asked(self, name: str) -> list[str]:
        if (wheel := self.files.get(canonicalize_name(name))) is None:
            return metadata.requires(name) or []
        (described,) = (path for path in zipfile.Path(wheel).iterdir() if path.name.endswith(".dist-info"))
        return metadata.PathDistribution(described).requires or []

    def install(self, package: str, place: Path) -> Environment:
        """Make an environment with a package, such as `osrdyne-jobs[http]`."""
        uv = str(steps.BIN / "uv")
        made = Environment(place)
        subprocess.run([uv, "venv", "--quiet", "--offline", "--python", str(steps.BIN / "python"), place], check=True)
        names = self.needed(package)
        ours = [str(self.files[name]) for name in sorted(names) if name in self.files]
        offline = [uv, "pip", "install", "--quiet", "--offline", "--no-index", "--no-deps"]
        if ours:
            subprocess.run([*offline, "--python", made.program("python"), *ours], check=True)
        (packages,) = place.glob("lib/python*/site-packages")
        for name in names - set(self.files):
            _link(name, packages)
        return made


@dataclass(frozen=True)
class Environment:
    """A virtual environment."""

    place: Path

    def program(self, name: str) -> str:
        """Return the path of one of its programs."""
        return str(self.place / "bin" / name)

    def run(self, name: str, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run one of its programs to its end, in its folder and with these variables alone."""
        return subprocess.run(
            [self.program(name), *words],
            capture_output=True,
            text=True,
            check=False,
            cwd=self.place,
            env={"PATH": f"{self.place}/bin:/usr/bin:/bin", **variables},
        )


def size(name: str) -> int:
    """Return how many bytes a package of others has in the environment of the tests."""
    files = [Path(str(file.locate())) for file in metadata.files(name) or () if file.suffix != ".pyc"]
    return sum(file.stat().st_size for file in files if file.is_file())


def _link(name: str, place: Path) -> None:
    for file in metadata.files(name) or ():
        top = file.parts[0]
        if top != ".." and not (place / top).exists():
            (place / top).symlink_to(Path(str(metadata.distribution(name).locate_file(top))))
