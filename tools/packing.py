"""Archives that depend on nothing but what is in them."""

from __future__ import annotations

import datetime as dt
import subprocess
from pathlib import Path


def pack(archive: Path, folder: Path, names: list[str], epoch: int) -> None:
    """Write files and folders of a folder into an archive, compressed by gzip; all get this time, and no owner."""
    command = ["tar", "--create", "--sort=name", f"--mtime=@{epoch}", "--mode=u=rwX,go=rX"]
    command += ["--owner=0", "--group=0", "--numeric-owner", "--use-compress-program=gzip --no-name"]
    subprocess.run([*command, "--file", archive, "--directory", folder, *names], check=True)


def timestamp(epoch: int) -> str:
    """Return seconds since 1970 as documents have them."""
    return f"{dt.datetime.fromtimestamp(epoch, dt.UTC):%Y-%m-%dT%H:%M:%SZ}"
