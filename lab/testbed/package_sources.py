"""How a root file system reaches packages: by apt and pip, in the way in which this machine does."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path


def of_apt(overlay: Path, suite: str) -> None:
    """Write apt's settings and sources for a Debian release."""
    apt = overlay / "etc/apt"
    (apt / "apt.conf.d").mkdir(parents=True)
    settings = subprocess.run(["apt-config", "dump"], check=True, capture_output=True, text=True).stdout
    acquire = [line for line in settings.splitlines() if line.startswith("Acquire::")]
    (apt / "apt.conf.d/10host").write_text("\n".join(acquire) + "\n")
    targets = ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", "Label: Debian"]
    uris = subprocess.run(targets, check=True, capture_output=True, text=True).stdout.split()
    if uris:
        (apt / "sources.list").write_text(f"deb {uris[0]} {suite} main\n")
    passwords = Path("/etc/apt/auth.conf.d")
    if passwords.is_dir():
        shutil.copytree(passwords, apt / "auth.conf.d")


def of_pip(overlay: Path) -> None:
    """Write pip's settings."""
    listing = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], check=True, capture_output=True, text=True
    )
    found = {}
    for line in listing.stdout.splitlines():
        name, _, value = line.partition("=")
        option = name.rsplit(".", 1)[-1]
        if option in ("cert", "index-url", "extra-index-url", "trusted-host"):
            found[option] = value.strip("'\"").replace("\\n", "\n    ")
    lines = [f"{option} = {value}" for option, value in found.items()]
    (overlay / "etc").mkdir(exist_ok=True)
    (overlay / "etc/pip.conf").write_text("\n".join(["[global]", *lines, ""]))


def certificates(overlay: Path) -> None:
    """Write the certificates of the authorities that this machine trusts."""
    bundle = Path("/etc/ssl/certs/ca-certificates.crt")
    if bundle.exists():
        target = overlay / "etc/ssl/certs"
        target.mkdir(parents=True)
        shutil.copy(bundle, target)
