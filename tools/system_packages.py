"""Install packages of the system by apt, without their services: `tools/system_packages.py --why=Redis redis-server`.

It needs root. It says on standard error what it installs, and on standard output why it could not. The work is done by
plugins/modules/osrdyne_packages.py, which is a file of its own for Ansible. Standard library only, and no syntax newer
than Python 3.8 but in annotations: see steps.py.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import steps

MODULE = steps.ROOT / "plugins/modules/osrdyne_packages.py"


def module() -> ModuleType:
    """The module that installs."""
    spec = importlib.util.spec_from_file_location("osrdyne_packages", MODULE)
    assert spec
    assert spec.loader
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def command(*names: str, why: str) -> list[str]:
    """The command that installs these packages, for root."""
    return [sys.executable, __file__, f"--why={why}", *names]


def main() -> None:
    """Install, or end the script with the reason why not."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--why", default="osrdyne", help="what they are for")
    parser.add_argument("--setting", action="append", default=[], metavar="FILE=LINE", help="a file meanwhile")
    parser.add_argument("names", nargs="*", metavar="PACKAGE", help="without one, only finish what was cut short")
    asked = parser.parse_args()
    settings = {Path(file): f"{line}\n" for file, line in (setting.split("=", 1) for setting in asked.setting)}
    packages = module()

    def say(new: str) -> None:
        print(f"{asked.why}: apt installs {new}", file=sys.stderr, flush=True)

    try:
        packages.install(asked.names, settings, say=say)
    except packages.NotInstalled as error:
        print(f"{asked.why}: {error}")
        sys.exit(1)


if __name__ == "__main__":
    main()
