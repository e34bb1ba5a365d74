"""qpid-proton for the tests of the bus: `folder()` is what to put on the path of Python.

It comes as C sources without wheels. So it is compiled once a machine and a version of Python, and is not in .venv, as
`make test` compiles nothing. Cold, on two quiet cores: under a minute. Where the machine has no C compiler, apt
installs one. It is compiled without Cyrus SASL and OpenSSL, whatever the machine has: the bus needs neither of them.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from testbed import apt, made_once
from testbed.suite import only_in_test_all

SOURCES = Path(__file__).with_suffix(".txt")


def folder() -> Path:
    """Return the folder with the packages `proton` and `cproton`, built unless it is there.

    Raises BuildFailed and apt.NotInstalled.
    """
    only_in_test_all("qpid-proton, which is compiled,")
    made_from = SOURCES.read_bytes() + sys.version.encode() + Path(__file__).read_bytes()
    return made_once.folder("proton", made_from, _build)


def _build(part: Path) -> None:
    if not shutil.which("cc"):
        apt.install("gcc", "libc6-dev", why="qpid-proton is compiled")
    print("qpid-proton is compiled, in about a minute", file=sys.stderr, flush=True)
    # So pkg-config finds no libraries.
    environment = {**os.environ, "PKG_CONFIG_LIBDIR": str(part), "PKG_CONFIG_PATH": ""}
    # Not from pip's cache: what was compiled in another way is kept there under the same name.
    made_once.install(SOURCES, part, "qpid-proton", "--no-cache-dir", environment=environment)
