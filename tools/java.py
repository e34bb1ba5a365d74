"""Find a Java that Spark runs on, and install one from Debian's packages where there is none.

`python tools/java.py` does so by hand. Standard library only.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import steps
import superuser
import system_packages
from osrdyne_runtime.console.streams import guarded

#: What Spark 4 asks for.
OLDEST = 17
PACKAGE = "default-jre-headless"


def version(command: str) -> int | None:
    """Return the major version of a `java` command; None where it does not answer as one does."""
    try:
        done = subprocess.run([command, "-version"], check=False, capture_output=True, text=True)
    except OSError:
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', done.stderr + done.stdout)
    return int(found.group(1)) if found else None


def found() -> str | None:
    """Return the `java` that Spark would run, JAVA_HOME's or the one on PATH; None where it is absent or too old."""
    home = os.environ.get("JAVA_HOME")
    command = str(Path(home, "bin/java")) if home else shutil.which("java")
    return command if command and (version(command) or 0) >= OLDEST else None


def ensure(what: str = "Spark") -> str:
    """Return a `java` that is new enough; install it where there is none, and say so. Ends the script on failure."""
    if (command := found()) is not None:
        return command
    if not shutil.which("apt-get"):
        steps.stop(f"{what} needs Java {OLDEST} or later: install one, and put it on PATH or name it in JAVA_HOME")
    install = system_packages.command(PACKAGE, why=f"{what} needs Java {OLDEST}")
    if subprocess.run([*superuser.prefix(f"installing a Java for {what}"), *install], check=False).returncode:
        steps.stop(f"{PACKAGE} could not be installed; install a Java, and name it in JAVA_HOME")
    if (command := found()) is None:
        steps.stop(f"{PACKAGE} is older than Java {OLDEST}: install a newer one and name it in JAVA_HOME")
    return command


if __name__ == "__main__":
    with guarded("java"):
        print(ensure())
