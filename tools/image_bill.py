"""Writes what an image consists of, as CycloneDX: the Dockerfiles run it, with the Python of their base and no library.

`python3 image_bill.py NAME FOLDER BASE`: the packages of the environment in FOLDER, Debian's packages of the base, and
what the base is called. It writes to standard output.
"""

from __future__ import annotations

import json
import platform
import re
import sys
from collections.abc import Iterator
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any
from urllib.parse import quote

import cyclonedx

_STATUS = Path("/var/lib/dpkg/status")
#: Of all packages of an image, the one of ours that each has: its version is that of the image.
_OURS = "osrdyne-worker"


def document(name: str, folder: Path, base: str, status: Path = _STATUS) -> dict[str, Any]:
    """Return the document. Raises StopIteration for an environment without our packages."""
    (packages,) = folder.glob("lib/python*/site-packages")
    found = sorted(distributions(path=[str(packages)]), key=_name)
    version = next(package.version for package in found if _name(package) == _OURS)
    components = [*map(_of_python, found), *sorted(_of_debian(status), key=lambda package: str(package["bom-ref"]))]
    components.append(
        cyclonedx.library("cpython", platform.python_version(), f"pkg:generic/cpython@{platform.python_version()}")
    )
    root = {
        "type": "container",
        "bom-ref": "image",
        "name": name,
        "version": version,
        "licenses": [{"license": {"id": "MIT"}}],
        "properties": [{"name": "org.opencontainers.image.base.name", "value": base}],
    }
    depends = [{"ref": "image", "dependsOn": [component["bom-ref"] for component in components]}]
    return cyclonedx.document(root, components, depends)


def _name(package: Distribution) -> str:
    return re.sub(r"[-_.]+", "-", package.metadata["Name"]).lower()


def _of_python(package: Distribution) -> dict[str, Any]:
    name = _name(package)
    about = cyclonedx.library(name, package.version, cyclonedx.of_pypi(name, package.version))
    said = package.metadata
    classifiers = said.get_all("Classifier") or []
    if "License-Expression" in said:
        about["licenses"] = [{"expression": said["License-Expression"]}]
    elif named := [line.rpartition(" :: ")[2] for line in classifiers if line.startswith("License :: ")]:
        about["licenses"] = [{"license": {"name": text}} for text in named]
    return about


def _of_debian(status: Path) -> Iterator[dict[str, Any]]:
    """Yield the packages that dpkg has installed, none where the base is not a Debian."""
    if not status.exists():
        return
    for paragraph in status.read_text(encoding="utf-8").split("\n\n"):
        fields = dict(re.findall(r"^([A-Z][\w-]*): (.*)$", paragraph, re.MULTILINE))
        if fields.get("Status") == "install ok installed":
            name, version = fields["Package"], fields["Version"]
            purl = f"pkg:deb/debian/{name}@{quote(version, safe='.~-')}?arch={fields['Architecture']}"
            yield cyclonedx.library(name, version, purl)


if __name__ == "__main__":
    json.dump(document(sys.argv[1], Path(sys.argv[2]), sys.argv[3]), sys.stdout, indent=1)
    print()
